"""The schema of a table: fields with ids, and how it may change.

A field keeps its id through every change, and an id is never given again. Blocks store the id with each column and keep
the schema they were written by, so a block is read by any later schema: columns are found by id, those added since are
null or have the default of then, and values are widened.

Allowed: to add a field that may be null or has a default, to drop one, to rename, to reorder, to widen its type, to let
it be null. Everything else is refused with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from slate_async.errors import InvalidError

MAX_FIELDS: Final = 1000
ROW_ID: Final = "_row"
"""The column of row ids that a block made by a merge carries. No field may have its name."""
FIELD_ID: Final = b"PARQUET:field_id"
"""Where Arrow and Parquet keep the id of a field."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column. ``default``: what rows written before the field was added have, an Arrow scalar; ``None``: null."""

    field_id: int
    name: str
    kind: pa.DataType
    nullable: bool = True
    default: pa.Scalar | None = None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Fields in order. ``next_id``: above every id that was ever given."""

    schema_id: int
    fields: tuple[Field, ...]
    next_id: int

    @classmethod
    def of(cls, given: pa.Schema) -> TableSchema:
        """The first schema of a table. Raises `InvalidError` for names and types that a table cannot have."""
        if not isinstance(given, pa.Schema):
            raise InvalidError(f"a table's schema is a pyarrow.Schema, not {given!r}")
        fields = tuple(_field(number, field) for number, field in enumerate(given, 1))
        return _checked(cls(0, fields, len(fields) + 1))

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def field(self, name: str) -> Field:
        """Raises `InvalidError` for an unknown name, with the nearest ones."""
        for field in self.fields:
            if field.name == name:
                return field
        near = difflib.get_close_matches(str(name), self.names, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"those are {self.names[:20]}"
        raise InvalidError(f"there is no column {name!r}; {hint}")

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """As Arrow has it, with the ids of fields: all columns, or those named, in that order."""
        chosen = self.fields if columns is None else [self.field(name) for name in columns]
        return pa.schema(
            [
                pa.field(field.name, field.kind, field.nullable, {FIELD_ID: str(field.field_id).encode()})
                for field in chosen
            ]
        )

    def altered(
        self,
        *,
        add: Mapping[str, pa.DataType | pa.Field] | None = None,
        defaults: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
        optional: Iterable[str] = (),
        order: Sequence[str] | None = None,
        fixed: Iterable[str] = (),
    ) -> TableSchema:
        """The schema after these changes, all made at once: names are those of before, but in ``order``.

        add: new columns; ``defaults``: what rows that are there already have in them
        optional: columns that may be null from now on
        order: all names, as they are to stand
        fixed: columns that no change may touch but a new place: keys and what the table is sorted by

        Raises `InvalidError` with the reason for a change that rows which are stored would not survive."""
        add, defaults, rename, widen = dict(add or {}), dict(defaults or {}), dict(rename or {}), dict(widen or {})
        drop, optional, fixed = set(drop), set(optional), set(fixed)
        for name in (*drop, *rename, *widen, *optional):
            self.field(name)
            if name in fixed:
                raise InvalidError(f"column {name!r} is a key or sort column, which cannot be changed")
        if missing := sorted(set(defaults) - set(add)):
            raise InvalidError(f"a default belongs to a column that is added, and {missing[0]!r} is none")
        if both := sorted(drop & (rename.keys() | widen.keys() | optional)):
            raise InvalidError(f"column {both[0]!r} is dropped, and changed otherwise")
        kept = [
            replace(
                field,
                name=rename.get(field.name, field.name),
                kind=_widened(field, widen[field.name]) if field.name in widen else field.kind,
                nullable=field.nullable or field.name in optional,
                default=_cast_default(field.default, widen.get(field.name)),
            )
            for field in self.fields
            if field.name not in drop
        ]
        new = [
            _added(number, name, given, defaults.get(name), has_default=name in defaults)
            for number, (name, given) in enumerate(add.items(), self.next_id)
        ]
        made = TableSchema(self.schema_id + 1, (*kept, *new), self.next_id + len(new))
        return _ordered(_checked(made), order)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of type ``old`` is one of ``new``, so that a stored column can be read as such."""
    types = pa.types
    if old == new:
        return True
    if types.is_integer(old) and types.is_integer(new):
        signed = types.is_signed_integer(old), types.is_signed_integer(new)
        return bool(new.bit_width > old.bit_width) and (signed[0] == signed[1] or signed == (False, True))
    if types.is_floating(old) and types.is_floating(new):
        return bool(new.bit_width > old.bit_width)
    if types.is_decimal(old) and types.is_decimal(new):
        return bool(new.scale == old.scale and new.precision > old.precision)
    if types.is_date(old) and types.is_timestamp(new):
        return bool(new.tz is None and new.unit in ("ms", "us"))
    return (old, new) in ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()))


def _checked(schema: TableSchema) -> TableSchema:
    names = schema.names
    if not names:
        raise InvalidError("a table has at least one column")
    if len(names) > MAX_FIELDS:
        raise InvalidError(f"a table has at most {MAX_FIELDS} columns, not {len(names)}")
    seen: dict[str, str] = {}
    for name in names:
        if not name or len(name.encode("utf-8", "surrogatepass")) > 255 or not name.isprintable():
            raise InvalidError(f"{name!r} is no name of a column: those have 1 to 255 bytes and are printable")
        if name == ROW_ID:
            raise InvalidError(f"no column can have the name {ROW_ID!r}: row ids do")
        if name.casefold() in seen:
            raise InvalidError(f"two columns have the name {name!r}, or differ in case only: {seen[name.casefold()]!r}")
        seen[name.casefold()] = name
    return schema


def _ordered(schema: TableSchema, order: Sequence[str] | None) -> TableSchema:
    if order is None:
        return schema
    if sorted(order) != sorted(schema.names):
        raise InvalidError(f"an order names each column once: {schema.names}, not {list(order)}")
    return replace(schema, fields=tuple(schema.field(name) for name in order))


def _field(number: int, field: pa.Field) -> Field:
    _check_kind(field.name, field.type)
    return Field(number, field.name, field.type, field.nullable)


def _added(number: int, name: str, given: Any, default: Any, *, has_default: bool) -> Field:
    kind, nullable = (given.type, given.nullable) if isinstance(given, pa.Field) else (given, True)
    if not isinstance(kind, pa.DataType):
        raise InvalidError(f"column {name!r} is added with a pyarrow type or field, not {given!r}")
    _check_kind(name, kind)
    if not has_default:
        if not nullable:
            raise InvalidError(f"column {name!r} cannot be required without a default: rows are there that lack it")
        return Field(number, name, kind, nullable)
    try:
        scalar = default if isinstance(default, pa.Scalar) else pa.scalar(default, kind)
        scalar = scalar.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InvalidError(f"the default of column {name!r} is no {kind}: {error}") from error
    if not scalar.is_valid:
        raise InvalidError(f"the default of column {name!r} cannot be null; leave it out")
    return Field(number, name, kind, nullable, scalar)


def _widened(field: Field, kind: Any) -> pa.DataType:
    if not isinstance(kind, pa.DataType):
        raise InvalidError(f"column {field.name!r} is widened to a pyarrow type, not {kind!r}")
    if not widens(field.kind, kind):
        raise InvalidError(
            f"column {field.name!r} cannot go from {field.kind} to {kind}: not every stored value is one of that type"
        )
    return kind


def _cast_default(default: pa.Scalar | None, kind: pa.DataType | None) -> pa.Scalar | None:
    return default if default is None or kind is None else default.cast(kind)


def _check_kind(name: str, kind: pa.DataType) -> None:
    """Only what Parquet stores and gives back as it was. Raises `InvalidError`."""
    types = pa.types
    if types.is_struct(kind):
        for field in kind:
            _check_kind(f"{name}.{field.name}", field.type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        _check_kind(name, kind.value_type)
    elif types.is_map(kind):
        _check_kind(name, kind.key_type)
        _check_kind(name, kind.item_type)
    elif types.is_dictionary(kind):
        if not (types.is_string(kind.value_type) or types.is_large_string(kind.value_type)):
            raise InvalidError(f"column {name!r} is of type {kind}: dictionaries are of strings")
    elif not (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or (types.is_floating(kind) and kind.bit_width > 16)
        or types.is_decimal128(kind)
        or types.is_decimal256(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.unit != "s")
        or (types.is_time(kind) and kind.unit != "s")
    ):
        hint = "; use milliseconds" if (types.is_timestamp(kind) or types.is_time(kind)) else ""
        raise InvalidError(f"column {name!r} is of type {kind}, which a table does not store{hint}")
