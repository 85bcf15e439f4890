"""What comes back: JSON objects with attributes, rows for tables, and a view for notebooks."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from . import _views


class Source(Protocol):
    """What figures are read from by their path in the JSON object."""

    def number(self, key: str) -> float: ...
    def text(self, key: str) -> str | None: ...
    def whole(self) -> dict[str, Any]: ...



@functools.cache
def _kinds(of: type) -> dict[str, str]:
    """What stands at each key of a class of records, as its annotation says."""
    kinds = {}
    for kind in reversed(of.__mro__):
        kinds.update(kind.__dict__.get("__annotations__", {}))
    return kinds


class Record(Mapping[str, Any]):
    """A JSON object: `record.step_time_s` and `record["step_time_s"]` are the same; a key that is not there because it
    is optional is None as an attribute. Compares, pickles and copies as the dict that it is."""

    __slots__ = ("_data", "_source", "_path")
    _parts: dict[str, type[Record]] = {}  # classes of its objects by key; "*" of any key
    _any = False  # it has keys that are names

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data, self._source = dict(data), None

    @classmethod
    def _later(cls, source: Source, path: str = "") -> Any:
        """The object at `path` of the source ("" or ending in a dot), which is there; read when it is asked for."""
        record = cls.__new__(cls)
        record._source, record._path = source, path
        return record

    def _read(self) -> dict[str, Any]:
        data = self._source.whole()
        for key in self._path.split(".")[:-1]:
            data = data[key]
        self._data = data
        return data

    def _figure(self, key: str) -> Any:
        """One figure of the source; None: read it all."""
        kind = _kinds(type(self)).get(key, "")
        path = self._path + key
        if kind in ("str", "str | None"):
            return self._source.text(path)
        if kind in ("float", "float | None", "bool"):
            value = self._source.number(path)
            if value != value or abs(value) >= 1e15:
                return None
            return value != 0 if kind == "bool" else int(value) if value.is_integer() else value
        part = self._parts.get(key)
        return part._later(self._source, path + ".") if part and kind == part.__name__ else None

    def _wrap(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return self._parts.get(key, self._parts.get("*", Record))(value)
        if isinstance(value, list):
            return [self._wrap(key, item) for item in value]
        return value

    def __getitem__(self, key: str) -> Any:
        return self._wrap(key, self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    @classmethod
    def _known(cls) -> list[str]:
        return [key for kind in cls.__mro__ for key in kind.__dict__.get("__annotations__", {}) if key[0] != "_"]

    def __getattr__(self, key: str) -> Any:
        if key == "_data":
            return self._read()
        if key.startswith("_"):
            raise AttributeError(key)
        if self._source and (value := self._figure(key)) is not None:
            return value
        if key in self._data:
            return self[key]
        known = self._known()
        if key in known:
            return None
        near = difflib.get_close_matches(key, [*self._data, *known], 1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise AttributeError(f"{type(self).__name__} has no {key}{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._data})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._data == (other._data if isinstance(other, Record) else dict(other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[Record], tuple[dict[str, Any]]]:
        return type(self), (self._data,)

    def __repr__(self) -> str:
        return _views.text(self)

    def _repr_html_(self) -> str:
        return _views.html(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object as plain dicts and lists (not a copy)."""
        return self._data

    def rows(self) -> list[dict[str, Any]]:
        """Flat rows: the layouts of a plan, the points of a study, the cells of a sweep; of others one row. Keys are
        those of docs/json.md joined by dots; lists are left out."""
        return _views.rows(self)

    def to_pandas(self) -> Any:
        """`rows` as a pandas.DataFrame; needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows())
