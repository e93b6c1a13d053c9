"""What is public: the names that the packages export, each with the members its class shows, with their signatures."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "slate_async",
    "slate_async.keys",
    "slate_async.sync",
    "slate_async.collections",
    "slate_async.spark",
    "slate_async.runtime",
    "slate_async.objectstore",
    "slate_async.objectstore.testing",
    "metastores",
    "metastores.testing",
)
OURS = ("slate_async", "metastores")
MADE_BY_CALLERS = {
    "Environment",
    "MemoryObjects",
    "MemoryStore",
    "MetaRuntime",
    "ObjectBodies",
    "ReadAhead",
    "RegisterMetaStore",
    "SparkExecutor",
    "ThreadOffload",
    "WriteBatch",
}  # others come from calls, or are dataclasses
HANDED_ON = {"slate_async.ReadAhead", "slate_async.collections.MergeTask", "slate_async.objectstore.MemoryObjects"}
"""What callers make and pass on, and never look into: of its members none is public."""
OPAQUE = {
    "Area": "a version of a collection; `inspect` shows what is in it",
    "Checkpoint": "of the manifest; CheckpointInfo is what callers see of it",
    "Marker": "as it is stored: docs/format/marker.md",
    "Counts": "of a controller, for its metrics",
    "KeySplit": "a range of a snapshot, which readers hand on",
    "Key": "the end of such a range",
    "ManifestState": "the manifest; ManifestInspection and CloneInfo are what callers see of it",
    "Mask": "an array of numpy, as the core of collections uses it",
    "MergedBatch": "of a version of a collection; an executor returns what `MergeTask` makes",
    "Parent": "of the manifest; an executor passes it on",
    "Pin": "keeps the version of a snapshot",
    "SharesClients": "an Environment, as other products than the database see it",
    "SstRef": "of the manifest; an executor passes it on, and IngestedSst is what callers see of it",
    "TimeKind": "u64 or u64x2; CollectionInfo has its name",
    "Times": "arrays of numpy, as the core of collections uses them",
    "WriterRegister": "as it is stored: docs/format/writer-register.md",
}
"""Names of ours that public signatures mention and that are not public themselves, and why."""
THEIRS = {"Column": "of pyspark", "Table": "of pyarrow"}
"""Names in public signatures that are not ours, although a module of ours defines one like it."""
QUALIFIED = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
FORWARD = re.compile(r"ForwardRef\((.*)\)")
HIDDEN = ("_", "test_", "model_")  # of a shipped suite its user calls none; nor what pydantic adds to `Settings`
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Public(NamedTuple):
    """One public name: where it is found, how it is called or what type it has, and its docstring."""

    name: str
    shape: str
    doc: str | None
    needs_doc: bool

    def __str__(self) -> str:
        return f"{self.name}{self.shape}"


def public_names(packages: Sequence[str] = PACKAGES) -> list[Public]:
    """All of it, package by package, each in alphabetical order."""
    found: list[Public] = []
    for package in packages:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            found += _named(f"{package}.{name}", getattr(module, name))
    return found


def exported(packages: Sequence[str] = PACKAGES) -> list[str]:
    """The names of the packages alone, without their members."""
    return [f"{package}.{name}" for package in packages for name in importlib.import_module(package).__all__]


def _named(name: str, thing: Any) -> Iterator[Public]:
    if inspect.isclass(thing):
        yield Public(name, _constructor(name, thing), inspect.getdoc(thing), needs_doc=True)
        if name not in HANDED_ON:
            yield from _members(name, thing)
    elif inspect.isroutine(thing):
        yield Public(name, _signature(thing), inspect.getdoc(thing), needs_doc=True)
    else:
        yield Public(name, f" = {_plain(QUALIFIED.sub('', str(thing)))}", None, needs_doc=False)


def unlisted(names: Sequence[Public]) -> dict[str, str]:
    """Names of ours that a signature among ``names`` mentions and that are not public: each with one such signature."""
    known = {*(name.name.rpartition(".")[2] for name in names), *OPAQUE, *THEIRS}
    ours = _defined() - known
    return {word: str(name) for name in names for word in WORD.findall(_annotations(name.shape)) if word in ours}


def _annotations(shape: str) -> str:
    """A shape without the texts that stand in it as defaults."""
    return re.sub(r'"[^"]*"', "", shape)


def _defined() -> set[str]:
    """What the modules of ours define: classes, and what is assigned at their top, type variables apart."""
    found: set[str] = set()
    for package in OURS:
        for path in (ROOT / package).rglob("*.py"):
            for statement in ast.parse(path.read_text(encoding="utf-8")).body:
                match statement:
                    case ast.ClassDef(name=name):
                        found.add(name)
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        found.add(name)
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if not _is_type_variable(value):
                        found.add(name)
                    case _:
                        pass
    return found


def _is_type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def _constructor(name: str, kind: type) -> str:
    if name.rpartition(".")[2] in MADE_BY_CALLERS or (
        issubclass(kind, Exception) and inspect.isfunction(kind.__init__)
    ):
        return _signature(kind)
    return ""


def _members(prefix: str, kind: type) -> Iterator[Public]:
    fields = _fields(kind)
    attributes = {name: found for name, found in _attributes(kind).items() if name not in fields}
    known = {*fields, *attributes}
    shown = {name for name in {*dir(kind), *known} if not name.startswith(HIDDEN)}
    names = sorted(name for name in shown | _calls(kind) if _is_ours(kind, name, known))
    for name in names:
        full = f"{prefix}.{name}"
        member = inspect.getattr_static(kind, name, None)
        if name in fields:
            yield Public(full, f": {fields[name]}", None, needs_doc=False)
        elif name in attributes:
            written, doc = attributes[name]
            yield Public(full, f": {written}", doc, needs_doc=True)
        elif isinstance(member, property | cached_property):
            read = member.fget if isinstance(member, property) else member.func
            returned = inspect.signature(read).return_annotation if read else Any
            yield Public(
                full, f": {_plain(inspect.formatannotation(returned))}", inspect.getdoc(member), needs_doc=True
            )
        elif isinstance(member, classmethod | staticmethod) or inspect.isroutine(member):
            call = getattr(kind, name)
            yield Public(full, _signature(call), inspect.getdoc(call), needs_doc=True)
        elif isinstance(member, Enum):
            yield Public(full, f" = {member.value!r}", None, needs_doc=False)
        else:
            yield Public(full, "", None, needs_doc=False)


def _calls(kind: type) -> set[str]:
    """``__call__`` of a protocol that is a function to its callers."""
    return {"__call__"} & set(vars(kind)) if getattr(kind, "_is_protocol", False) else set()


def _fields(kind: type) -> dict[str, str]:
    """Fields of a dataclass, a named tuple or a model, with their types as they are written."""
    named: dict[str, Any] = {}
    if dataclasses.is_dataclass(kind):
        named = {field.name: field.type for field in dataclasses.fields(kind)}
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        named = inspect.get_annotations(kind)
    elif hasattr(kind, "model_fields"):
        named = {name: field.annotation for name, field in kind.model_fields.items()}
    return {name: _plain(inspect.formatannotation(written)) for name, written in named.items()}


def _attributes(kind: type) -> dict[str, tuple[str, str | None]]:
    """Attributes that the class or a base of ours annotates, with their types as they are written, and the docstrings
    below them."""
    found: dict[str, tuple[str, str | None]] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] not in OURS:
            continue
        docs = _attribute_docs(base)
        for name, written in inspect.get_annotations(base).items():
            if not name.startswith(HIDDEN):
                found[name] = _plain(inspect.formatannotation(written)), docs.get(name)
    return found


def _attribute_docs(kind: type) -> dict[str, str]:
    body = class_body(kind)
    return {
        annotated.target.id: inspect.cleandoc(doc)
        for annotated, below in pairwise(body)
        if isinstance(annotated, ast.AnnAssign) and isinstance(annotated.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(doc := below.value.value, str)
    }


def unannotated(kind: type) -> set[str]:
    """Public attributes that ``__init__`` of the class or of a base of ours sets, and that no class body names."""
    names: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in OURS and "__init__" in vars(base):
            names |= {
                target.attr
                for method in class_body(base)
                if isinstance(method, ast.FunctionDef) and method.name == "__init__"
                for target in ast.walk(method)
                if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
                if isinstance(target.value, ast.Name) and target.value.id == "self"
            }
    return {name for name in names if not name.startswith("_")} - {*_attributes(kind), *_fields(kind)}


def class_body(kind: type) -> list[ast.stmt]:
    """The statements of a class as they are written; none of one that was made by a call."""
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        return []
    definition = ast.parse(textwrap.dedent(source)).body[0]
    return definition.body if isinstance(definition, ast.ClassDef) else []


def _is_ours(kind: type, name: str, known: set[str]) -> bool:
    """Whether a member is defined by this project, not inherited from a library's class."""
    if name in known:
        return True
    owner = next((base for base in kind.__mro__ if name in vars(base)), kind)
    return owner.__module__.partition(".")[0] in OURS


def _signature(call: Any) -> str:
    signature = inspect.signature(call)
    parameters = [
        parameter if parameter.default is parameter.empty else parameter.replace(default=_Written(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    waits = "async " if inspect.iscoroutinefunction(call) else ""
    return f"{_plain(str(signature.replace(parameters=parameters)))}{' (awaited)' if waits else ''}"


class _Written:
    """A default as a signature shows it: without the address of an object."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f'"{self._value}"' if isinstance(self._value, str) else ADDRESS.sub("", repr(self._value))


def _plain(written: str) -> str:
    return FORWARD.sub(r"\1", written.replace("'", "").replace("typing.", ""))
