"""Errors travel as statuses and come back as what they were."""

from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from slate_async import errors
from slate_async.rpc.statuses import TRAILER, StatusError, error_of, status_of

Code = grpc.StatusCode


def answered(code: grpc.StatusCode, text: str, trailer: bytes = b"") -> AioRpcError:
    trailing = Metadata((TRAILER, trailer)) if trailer else Metadata()
    return AioRpcError(code, Metadata(), trailing, details=text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFoundError("no table"), Code.NOT_FOUND),
        (errors.ConfigError("no bucket"), Code.FAILED_PRECONDITION),
        (errors.InvalidError("bad column", outcome="not_applied"), Code.INVALID_ARGUMENT),
        (errors.ConflictError("changed", reason="written"), Code.ABORTED),
        (errors.UnavailableError("slow", outcome="unknown"), Code.UNAVAILABLE),
        (errors.CorruptionError("torn", object_name="a.parquet", offset=7), Code.DATA_LOSS),
        (errors.InternalError("bug"), Code.INTERNAL),
    ],
)
def test_errors_come_back_as_they_were(error: errors.SlateError, code: grpc.StatusCode) -> None:
    found, text, trailer = status_of(error)
    assert found is code
    assert str(error) in text
    back = error_of(answered(found, text, trailer), outcome=None)
    assert type(back) is type(error)
    assert str(back) == str(error)
    for name in ("outcome", "reason", "object_name", "offset"):
        assert getattr(back, name, None) == getattr(error, name, None)


def test_an_unknown_outcome_is_in_the_text_with_its_append_id() -> None:
    error = errors.UnavailableError("no answer", outcome="unknown")
    error.append_id = ("job", 7)  # type: ignore[attr-defined]
    _, text, _ = status_of(error)
    assert 'outcome=unknown, append_id=["job", 7]' in text


def test_narrower_errors_come_back_as_the_kind_that_the_client_knows() -> None:
    class OwnError(errors.ConflictError):
        pass

    code, text, trailer = status_of(OwnError("mine"))
    assert type(error_of(answered(code, text, trailer), outcome=None)) is errors.ConflictError
    assert type(error_of(answered(code, text, trailer), outcome=None, kinds={"OwnError": OwnError})) is OwnError


@pytest.mark.parametrize(
    ("code", "text", "kind", "outcome"),
    [
        (Code.UNAVAILABLE, "connection refused", errors.UnavailableError, "unknown"),
        (Code.DEADLINE_EXCEEDED, "late", errors.UnavailableError, "unknown"),
        (Code.UNAUTHENTICATED, "no token", errors.ConfigError, "not_applied"),
        (Code.RESOURCE_EXHAUSTED, "64 streams", errors.UnavailableError, "not_applied"),
        (
            Code.RESOURCE_EXHAUSTED,
            "SERVER: Received message larger than max (9 vs. 4)",
            errors.InvalidError,
            "not_applied",
        ),
        (Code.NOT_FOUND, "no", errors.NotFoundError, "not_applied"),
    ],
)
def test_statuses_without_a_trailer(code: Code, text: str, kind: type[Exception], outcome: str) -> None:
    found = error_of(answered(code, text), outcome="unknown")
    assert type(found) is kind
    assert found.outcome == outcome


@pytest.mark.parametrize("trailer", [b"{", b"[]", b'{"kinds": ["X"], "message": 1}', b'{"kinds": 3, "message": ""}'])
def test_a_trailer_that_is_none_is_passed_over(trailer: bytes) -> None:
    assert type(error_of(answered(Code.NOT_FOUND, "no", trailer), outcome=None)) is errors.NotFoundError


def test_texts_are_cut_and_statuses_of_services_kept() -> None:
    code, text, trailer = status_of(StatusError(Code.RESOURCE_EXHAUSTED, "x" * 5_000))
    assert (code, len(text) < 1_600, trailer) == (Code.RESOURCE_EXHAUSTED, True, b"")
