"""libmoesim through ctypes: finds it, calls it, and turns what it says into exceptions."""

from __future__ import annotations

import ctypes
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_NEEDS = "Debian 12: apt install libglib2.0-0 libjson-glib-1.0-0 libgsl27 libyaml-0-2"
_PLACE = re.compile(
    r"(?P<file>[^\s:][^:]*):(?:(?P<line>\d+):)? (?:(?P<path>[A-Za-z_]\w*(?:\.\w+|\[\d+\])*): )?(?P<reason>.*)", re.S
)


class MoesimError(Exception):
    """What libmoesim refuses. `status` is the exit status of the command line; `file`, `line`, `path` (of the key) say
    where, each None where it is not known; `reason` is the message without them."""

    status = 4

    def __init__(self, message: str) -> None:
        super().__init__(message)
        place = _PLACE.fullmatch(message)
        self.file: str | None = place["file"] if place else None
        self.line: int | None = int(place["line"]) if place and place["line"] and self.file != "dict" else None
        self.path: str | None = place["path"] if place else None
        self.reason: str = place["reason"] if place else message


class Stopped(MoesimError):
    """It was stopped before there was an answer."""

    status = 1


class UsageError(MoesimError, ValueError):
    """An argument is wrong."""

    status = 2


class InputError(MoesimError, ValueError):
    """The content of a file, of a dict or of an option is wrong."""

    status = 3


class EnvironmentFailure(MoesimError, OSError):
    """A file cannot be read, or the machine does not give what is needed."""

    status = 4

    def __str__(self) -> str:
        return str(self.args[0])


_ERRORS = {kind.status: kind for kind in (Stopped, UsageError, InputError, EnvironmentFailure)}
_PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_char_p, ctypes.c_void_p)


class _Watch(ctypes.Structure):
    _fields_ = [("stop", ctypes.POINTER(ctypes.c_int)), ("progress", _PROGRESS), ("user", ctypes.c_void_p)]


def _load() -> ctypes.CDLL:
    beside = _HERE / "libmoesim.so.0"
    name = os.environ.get("MOESIM_LIBRARY") or (str(beside) if beside.exists() else "libmoesim.so.0")
    try:
        library = ctypes.CDLL(name)  # releases the GIL in every call
    except OSError as error:
        raise ImportError(f"moesim: {error} ({_NEEDS}; MOESIM_LIBRARY names another libmoesim.so.0)") from None
    text = ctypes.POINTER(ctypes.c_char_p)
    library.moesim_version.restype = ctypes.c_char_p
    library.moesim_free.argtypes = [ctypes.c_char_p]
    library.moesim_free.restype = None
    library.moesim_set_data.argtypes = [ctypes.c_char_p]
    library.moesim_set_data.restype = None
    library.moesim_call.argtypes = [ctypes.c_char_p] * 4 + [ctypes.POINTER(_Watch), text, text]
    library.moesim_call.restype = ctypes.c_int
    handles = ctypes.POINTER(ctypes.c_void_p)
    library.moesim_predict.argtypes = [ctypes.c_char_p] * 2 + [ctypes.c_int] * 2 + [handles, handles, text]
    library.moesim_predict.restype = ctypes.c_int
    library.moesim_result_get.argtypes = library.moesim_result_get_text.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.moesim_result_get.restype = ctypes.c_double
    library.moesim_result_get_text.restype = ctypes.c_char_p
    library.moesim_result_json.argtypes = [ctypes.c_void_p]
    library.moesim_result_json.restype = ctypes.c_void_p
    library.moesim_result_free.argtypes = library.moesim_scenario_free.argtypes = [ctypes.c_void_p]
    library.moesim_result_free.restype = library.moesim_scenario_free.restype = None
    if (_HERE / "data" / "models").is_dir():
        library.moesim_set_data(os.fsencode(_HERE / "data"))
    return library


_lib = _load()
version: str = _lib.moesim_version().decode()


def _take(text: ctypes.c_char_p) -> str | None:
    value = text.value
    if value is not None:
        _lib.moesim_free(text)
    return None if value is None else value.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _document(document: object) -> tuple[str | None, str | None]:
    """File and JSON text of a path or a mapping."""
    if document is None:
        return None, None
    if isinstance(document, (str, os.PathLike)):
        return os.fspath(document), None  # type: ignore[return-value]
    if isinstance(document, Mapping):
        return "dict", json.dumps(dict(document), default=_plain, allow_nan=False)
    raise TypeError(f"give a path or a dict, not {type(document).__name__}")


def _beside(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="moesim", daemon=True)
    thread.start()
    return thread


def _wait(thread: threading.Thread) -> None:
    while thread.is_alive():  # not in one wait: the signal may come to the other thread
        thread.join(0.1)


_FIDELITIES = ("bound", "fast", "full")


class Predicted:
    """A result that stays in the library: its figures are read when they are asked for."""

    __slots__ = ("_scenario", "_result", "_status", "_error")

    def __init__(self, scenario: object, fidelity: str, strict: bool) -> None:
        self._scenario, self._result = ctypes.c_void_p(), ctypes.c_void_p()
        self._status, self._error = 4, ctypes.c_char_p()
        file, text = map(_bytes, _document(scenario))
        if fidelity == "full" and threading.current_thread() is threading.main_thread():
            _wait(_beside(lambda: self._work(file, text, fidelity, strict)))  # the thread keeps self until it ends
        else:
            self._work(file, text, fidelity, strict)
        if self._status:
            raise _ERRORS.get(self._status, MoesimError)(_take(self._error) or "no answer")

    def _work(self, file: bytes | None, text: bytes | None, fidelity: str, strict: bool) -> None:
        self._status = _lib.moesim_predict(
            file,
            text,
            _FIDELITIES.index(fidelity),
            bool(strict),
            ctypes.byref(self._scenario),
            ctypes.byref(self._result),
            ctypes.byref(self._error),
        )

    def __del__(self) -> None:
        _lib.moesim_result_free(self._result)
        _lib.moesim_scenario_free(self._scenario)

    def number(self, key: str) -> float:
        """A figure by its path in the JSON object; NaN where it is none."""
        return _lib.moesim_result_get(self._result, key.encode())

    def text(self, key: str) -> str | None:
        """The same of a text."""
        value = _lib.moesim_result_get_text(self._result, key.encode())
        return None if value is None else value.decode()

    def whole(self) -> dict[str, Any]:
        """The JSON object."""
        text = ctypes.c_char_p(_lib.moesim_result_json(self._result))
        return json.loads(_take(text) or "{}")


class _Call:
    """One call; may be stopped from other threads."""

    def __init__(self, verb: str, document: object, options: Mapping[str, object], progress: Callable | None) -> None:
        self.verb = verb.encode()
        self.file, self.json = map(_bytes, _document(document))
        self.options = json.dumps({k: v for k, v in options.items() if v is not None}, allow_nan=False).encode()
        self.progress = progress
        self.stop = ctypes.c_int(0)
        self.raised: BaseException | None = None
        self.status = 4
        self.answer: str | None = None
        self.error: str | None = None

    def _report(self, done: float, so_far: bytes, _user: object) -> None:
        try:
            if self.progress and self.progress(done, json.loads(so_far)) is False:
                self.stop.value = 1
        except BaseException as error:  # must not cross C; raised again in the caller
            self.raised = error
            self.stop.value = 1

    def work(self) -> None:
        watch = _Watch(ctypes.pointer(self.stop), _PROGRESS(self._report if self.progress else 0), None)
        answer, error = ctypes.c_char_p(), ctypes.c_char_p()
        self.status = _lib.moesim_call(
            self.verb,
            self.file,
            self.json,
            self.options,
            ctypes.byref(watch),
            ctypes.byref(answer),
            ctypes.byref(error),
        )
        self.answer, self.error = _take(answer), _take(error)

    def work_beside(self) -> None:
        """On a thread of its own, so that Ctrl-C reaches this one and stops the work."""
        thread = _beside(self.work)
        try:
            _wait(thread)
        except BaseException:
            self.stop.value = 1
            thread.join()
            raise

    def result(self) -> str:
        if self.raised:
            raise self.raised
        if self.answer is None:
            raise _ERRORS.get(self.status, MoesimError)(self.error or "no answer")
        return self.answer


def call(
    verb: str,
    document: object = None,
    options: Mapping[str, object] | None = None,
    progress: Callable[[float, dict], object] | None = None,
    long: bool = False,
) -> str:
    """The answer of a verb of libmoesim as text; raises MoesimError. `long`: Ctrl-C must be able to stop it."""
    job = _Call(verb, document, options or {}, progress)
    if long and threading.current_thread() is threading.main_thread():
        job.work_beside()
    else:
        job.work()
    return job.result()
