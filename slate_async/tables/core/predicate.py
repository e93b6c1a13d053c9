"""Predicates on rows, as users write them: ``(col("price") > 3) & col("sku").isin(["a", "b"])``.

A predicate is a tree of frozen nodes that knows no schema: `slate_async.tables.core.binding` joins it to one. It also
comes from a list of conditions that all have to hold, or of such lists of which one has to (disjunctive normal form),
and travels in tickets as JSON.

Nulls follow SQL: a comparison with a null is neither true nor false, and a row stays only if the whole is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from slate_async.errors import InvalidError
from slate_async.tables.core.literals import literal_from_json, literal_to_json

MAX_NODES = 10_000
"""Nodes and values of one predicate; a longer one is refused."""
MAX_DEPTH = 100
"""Of nesting."""


class Op(Enum):
    """How a column is compared with a value. The value is what users write in lists."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
"""What is true of values, nulls left out, where the other one is false."""


class Predicate:
    """Base of all nodes. ``&``, ``|`` and ``~`` combine them."""

    __slots__ = ()

    def __and__(self, other: Predicate) -> Predicate:
        return And((*_parts(self, And), *_parts(_checked(other, "&"), And)))

    def __or__(self, other: Predicate) -> Predicate:
        return Or((*_parts(self, Or), *_parts(_checked(other, "|"), Or)))

    def __invert__(self) -> Predicate:
        return self.part if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise InvalidError(
            "a predicate is neither true nor false by itself: combine predicates with &, | and ~ instead of and, or and"
            " not, put each comparison in parentheses, and write (col(...) > 1) & (col(...) < 3) for 1 < col(...) < 3"
        )


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    """``column op value``. ``value`` is as the user gave it."""

    column: str
    op: Op
    value: Any

    def __str__(self) -> str:
        return f"{self.column} {self.op.value} {self.value!r}"


@dataclass(frozen=True, slots=True)
class IsIn(Predicate):
    """``column`` is one of ``values``."""

    column: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        shown = ", ".join(repr(value) for value in self.values[:5])
        return f"{self.column} in [{shown}{', …' if len(self.values) > 5 else ''}]"


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """``column`` is null. True or false of every row."""

    column: str

    def __str__(self) -> str:
        return f"{self.column} is null"


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    """``column``, of strings or bytes, starts with ``prefix``."""

    column: str
    prefix: str | bytes

    def __str__(self) -> str:
        return f"{self.column} starts with {self.prefix!r}"


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """All of ``parts``; of none: true."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " & ".join(f"({part})" for part in self.parts) or "true"


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """One of ``parts``; of none: false."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " | ".join(f"({part})" for part in self.parts) or "false"


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """``part`` is false. Of a null it is neither true nor false."""

    part: Predicate

    def __str__(self) -> str:
        return f"~({self.part})"


class Column:
    """A top-level column; comparisons with it are predicates. `col` makes one."""

    __slots__ = ("name",)
    name: str
    """Of the column."""

    __hash__ = None  # type: ignore[assignment]  # == makes a predicate

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidError(f"col() takes the name of a column, not {name!r}")
        self.name = name

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return Comparison(self.name, Op.EQ, self._value(value))

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Comparison(self.name, Op.NE, self._value(value))

    def __lt__(self, value: Any) -> Predicate:
        return Comparison(self.name, Op.LT, self._value(value))

    def __le__(self, value: Any) -> Predicate:
        return Comparison(self.name, Op.LE, self._value(value))

    def __gt__(self, value: Any) -> Predicate:
        return Comparison(self.name, Op.GT, self._value(value))

    def __ge__(self, value: Any) -> Predicate:
        return Comparison(self.name, Op.GE, self._value(value))

    def isin(self, values: Iterable[Any]) -> Predicate:
        """One of ``values``. Raises `InvalidError` for a string, and for a null among them."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidError(f"col({self.name!r}).isin() takes a list of values, not {values!r}")
        return IsIn(self.name, tuple(self._value(value) for value in values))

    def is_null(self) -> Predicate:
        """Whether there is no value."""
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        """Whether there is a value."""
        return Not(IsNull(self.name))

    def startswith(self, prefix: str | bytes) -> Predicate:
        """Of strings and bytes."""
        if not isinstance(prefix, str | bytes):
            raise InvalidError(f"col({self.name!r}).startswith() takes a string or bytes, not {prefix!r}")
        return StartsWith(self.name, prefix)

    def __bool__(self) -> bool:
        raise InvalidError(
            f"col({self.name!r}) is neither true nor false: compare it, as in col({self.name!r}) == True"
        )

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def _value(self, value: Any) -> Any:
        if value is None:
            raise InvalidError(f"nothing compares with null; use col({self.name!r}).is_null()")
        if isinstance(value, Column | Predicate):
            raise InvalidError(f"col({self.name!r}) compares with a value, not with another column or predicate")
        return value


def col(name: str) -> Column:
    """The column ``name``, to be compared: ``col("price") > 3``."""
    return Column(name)


Condition: TypeAlias = tuple[str, str] | tuple[str, str, Any]
"""``("price", ">", 3)``, ``("sku", "in", ["a"])``, ``("note", "is null")``, ``("sku", "starts with", "a")``."""
PredicateLike: TypeAlias = Predicate | Iterable[Condition] | Iterable[Iterable[Condition]]
"""A predicate, conditions that all have to hold, or lists of conditions one of which has to hold whole."""


def predicate_of(given: PredicateLike) -> Predicate:
    """What a user gives as a predicate. Raises `InvalidError` for anything else, and for one that is too large."""
    made = given if isinstance(given, Predicate) else _from_lists(given)
    _check_size(made)
    return made


def columns_of(predicate: Predicate) -> set[str]:
    """The columns that ``predicate`` asks about."""
    return {node.column for node in _nodes(predicate) if isinstance(node, Comparison | IsIn | IsNull | StartsWith)}


def to_json(predicate: Predicate) -> dict[str, Any]:
    """As a JSON object, for tickets and command lines. Raises `InvalidError` for a value of a type that has no form."""
    match predicate:
        case Comparison(column, op, value):
            return {"op": op.value, "column": column, "value": literal_to_json(value)}
        case IsIn(column, values):
            return {"op": "in", "column": column, "values": [literal_to_json(value) for value in values]}
        case IsNull(column):
            return {"op": "is null", "column": column}
        case StartsWith(column, prefix):
            return {"op": "starts with", "column": column, "value": literal_to_json(prefix)}
        case And(parts):
            return {"op": "and", "parts": [to_json(part) for part in parts]}
        case Or(parts):
            return {"op": "or", "parts": [to_json(part) for part in parts]}
        case Not(part):
            return {"op": "not", "part": to_json(part)}
    raise InvalidError(f"{predicate!r} is no predicate")


def from_json(value: Any) -> Predicate:
    """Back from `to_json`. Raises `InvalidError` for anything else."""
    made = _from_json(value, MAX_DEPTH)
    _check_size(made)
    return made


def _from_json(value: Any, depth: int) -> Predicate:
    if not isinstance(value, Mapping) or depth <= 0:
        raise InvalidError("no predicate: that is a JSON object with an op, nested at most 100 deep")
    op = value.get("op")
    if op in ("and", "or") and isinstance(value.get("parts"), list):
        parts = tuple(_from_json(part, depth - 1) for part in value["parts"])
        return And(parts) if op == "and" else Or(parts)
    if op == "not":
        return Not(_from_json(value.get("part"), depth - 1))
    column = value.get("column")
    if not isinstance(column, str) or not column:
        raise InvalidError(f"no predicate: op {op!r} with column {column!r}")
    if op == "is null":
        return IsNull(column)
    if op == "in" and isinstance(value.get("values"), list):
        return IsIn(column, tuple(literal_from_json(item) for item in value["values"]))
    literal = literal_from_json(value.get("value"))
    if op == "starts with" and isinstance(literal, str | bytes):
        return StartsWith(column, literal)
    return Comparison(column, _op(op), literal)


def _from_lists(given: Any) -> Predicate:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidError(
            f"{given!r} is no predicate: write col('a') > 1, [('a', '>', 1)], or a list of such lists of which one"
            " has to hold"
        )
    listed = list(given)
    if listed and all(isinstance(item, list) for item in listed):
        return Or(tuple(And(tuple(_condition(item) for item in conditions)) for conditions in listed))
    return And(tuple(_condition(item) for item in listed))


def _condition(given: Any) -> Predicate:
    if not isinstance(given, tuple) or not 2 <= len(given) <= 3 or not isinstance(given[0], str):
        raise InvalidError(f"{given!r} is no condition: that is (column, comparison, value)")
    name, sign, *value = given
    unary: dict[str, Callable[[Column], Predicate]] = {"is null": Column.is_null, "is not null": Column.is_not_null}
    if sign in unary:
        if value:
            raise InvalidError(f"{given!r}: {sign} takes no value")
        return unary[sign](Column(name))
    if not value:
        raise InvalidError(f"{given!r}: {sign} takes a value")
    if sign == "in":
        return Column(name).isin(value[0])
    if sign == "not in":
        return ~Column(name).isin(value[0])
    if sign == "starts with":
        return Column(name).startswith(value[0])
    return Comparison(name, _op(sign), Column(name)._value(value[0]))


def _op(sign: object) -> Op:
    for op in Op:
        if sign == op.value:
            return op
    known = [op.value for op in Op] + ["in", "not in", "is null", "is not null", "starts with"]
    raise InvalidError(f"{sign!r} is no comparison: those are {', '.join(known)}")


def _parts(predicate: Predicate, kind: type[And] | type[Or]) -> tuple[Predicate, ...]:
    return predicate.parts if isinstance(predicate, kind) else (predicate,)


def _checked(other: object, sign: str) -> Predicate:
    if not isinstance(other, Predicate):
        raise InvalidError(f"{sign} joins predicates, and {other!r} is none: put each comparison in parentheses")
    return other


def _nodes(predicate: Predicate) -> Iterator[Predicate]:
    waiting = [predicate]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, And | Or):
            waiting.extend(node.parts)
        elif isinstance(node, Not):
            waiting.append(node.part)


def _check_size(predicate: Predicate) -> None:
    count = sum(1 + (len(node.values) if isinstance(node, IsIn) else 0) for node in _nodes(predicate))
    if count > MAX_NODES:
        raise InvalidError(f"a predicate has at most {MAX_NODES} conditions and values, not {count}")
    level, depth = [predicate], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidError(f"a predicate is nested at most {MAX_DEPTH} deep")
        level = [
            part
            for node in level
            for part in (node.parts if isinstance(node, And | Or) else (node.part,) if isinstance(node, Not) else ())
        ]
