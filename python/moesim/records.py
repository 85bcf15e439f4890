"""What comes back: JSON objects with attributes, rows for tables, and a view for notebooks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from . import _views


class Record(Mapping[str, Any]):
    """A JSON object: `record.step_time_s` and `record["step_time_s"]` are the same; a key that is not there because it
    is optional is None as an attribute. Compares, pickles and copies as the dict that it is."""

    __slots__ = ("_data",)
    _parts: dict[str, type[Record]] = {}  # classes of its objects by key; "*" of any key
    _any = False  # it has keys that are names

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = dict(data)

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
        if key.startswith("_"):
            raise AttributeError(key)
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
