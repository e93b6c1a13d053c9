"""Envelopes refuse every wrong byte; names go both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastores import names
from metastores.envelope import Kind, Sealed, seal, unseal
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError
from metastores.protocol import VersionRef

TOKEN = "0123456789abcdef" * 2
CONTENT = Sealed(Kind.BODY, "manifest/x", VersionRef(7, TOKEN), b"payload", (VersionRef(6, "f" * 32),))

REFS = st.builds(VersionRef, st.integers(1, 2**64 - 1), st.binary(min_size=16, max_size=16).map(bytes.hex))


@given(st.text(max_size=40), REFS, st.binary(max_size=200), st.lists(REFS, max_size=5))
def test_round_trip(name: str, ref: VersionRef, payload: bytes, links: list[VersionRef]) -> None:
    content = Sealed(Kind.HEAD, name, ref, payload, tuple(links))
    assert unseal(seal(content), kind=Kind.HEAD, name=name) == content


def test_every_flipped_bit_and_every_truncation_is_refused() -> None:
    data = seal(CONTENT)
    broken = [data[:size] for size in range(len(data))] + [data + b"\0", b""]
    for at in range(len(data)):
        for bit in range(8):
            broken.append(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    for each in broken:
        with pytest.raises(MetaStoreCorruptionError) as caught:
            unseal(each, kind=Kind.BODY, name="manifest/x")
        assert caught.value.object_name == "manifest/x"


def test_another_object_is_refused() -> None:
    data = seal(CONTENT)
    for kind, name in ((Kind.HEAD, "manifest/x"), (Kind.BODY, "manifest/y")):
        with pytest.raises(MetaStoreCorruptionError, match="another object"):
            unseal(data, kind=kind, name=name)


@pytest.mark.parametrize(
    "layout", [names.MANIFEST, names.MERGED_AREAS, names.TABLE_HEADS, names.CATALOGS], ids=lambda layout: layout.folder
)
def test_keys_go_both_ways_and_nothing_else_is_ours(layout: names.Layout) -> None:
    ref = VersionRef(42, TOKEN)
    assert layout.version_of(layout.version_key(42)) == 42
    assert layout.boundary_of(layout.boundary_key(42)) == 42
    assert layout.body_ref(layout.body_key(ref)) == ref
    ours = (layout.version_key(1), layout.boundary_key(1), layout.body_key(ref), layout.current, layout.elsewhere)
    foreign = ("manifest/1.manifest", "merged_areas/v1", layout.version_key(1) + "x", "x/" + TOKEN)
    for key in (*ours, *foreign):
        assert (layout.version_of(key) is not None) == (key == layout.version_key(1))
        assert (layout.boundary_of(key) is not None) == (key == layout.boundary_key(1))
        assert (layout.body_ref(key) is not None) == (key == layout.body_key(ref))


def test_what_is_stored_keeps_its_names() -> None:
    ref = VersionRef(42, TOKEN)
    number = f"{42:020}"
    assert names.MANIFEST.version_key(42) == f"manifest/{number}.manifest"
    assert names.MANIFEST.boundary_key(42) == f"manifest/boundary/{number}"
    assert names.MANIFEST.body_key(ref) == f"manifest/{number}.{TOKEN}"
    assert (names.MANIFEST.current, names.MANIFEST.elsewhere) == ("manifest/current", "manifest/elsewhere")
    assert names.MERGED_AREAS.version_key(42) == f"merged_areas/v{number}"
    assert names.MERGED_AREAS.boundary_key(42) == f"merged_areas/v_boundary/{number}"
    assert names.MERGED_AREAS.body_key(ref) == f"merged_areas/v{number}.{TOKEN}"
    assert (names.MERGED_AREAS.current, names.MERGED_AREAS.elsewhere) == (
        "merged_areas/current",
        "merged_areas/elsewhere",
    )


@pytest.mark.parametrize(
    "wrong",
    [{"folder": "x"}, {"folder": "x/", "boundary": "b"}, {"folder": "x/", "before": "v", "boundary": "boundary/"}],
)
def test_a_listing_that_read_the_boundary_before_the_versions_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(MetaStoreInvalidError, match="no layout"):
        names.Layout("x", "y", **wrong)


@pytest.mark.parametrize(
    ("given_name", "filed"),
    [
        ("s3://bucket/db/", "s3://bucket/db"),
        ("S3://bucket/DB?region=x#y", "s3://bucket/DB"),
        ("file:///data/db", "file:///data/db"),
        ("/data/db//", "/data/db"),
    ],
)
def test_database_names_have_one_form(given_name: str, filed: str) -> None:
    assert names.database_name(given_name) == filed


def test_long_names_are_bounded_and_stay_apart() -> None:
    first, second = (names.database_name("s3://b/" + "ä" * 5000 + end) for end in ("x", "y"))
    assert first != second
    assert max(len(first.encode()), len(second.encode())) <= names.MAX_NAME_BYTES


def test_credentials_in_a_name_are_refused_without_repeating_them() -> None:
    with pytest.raises(MetaStoreInvalidError) as caught:
        names.database_name("s3://key:hunter2@bucket/db")
    assert "hunter2" not in str(caught.value)
