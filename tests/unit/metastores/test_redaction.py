"""What is cut out of SDK texts before anybody reads them, and what stays."""

from __future__ import annotations

import pytest

from metastores.redaction import MAX_DETAIL_CHARS, redacted

SECRET = "s3cretValue99"


@pytest.mark.parametrize(
    "text",
    [
        f"PUT https://a.blob.core.windows.net/c/b?sv=2020-01-01&sig={SECRET} failed",
        f"proxy http://user:{SECRET}@proxy:3128 refused",
        f'Authorization: "Bearer {SECRET}"',
        f"authorization: SharedKey {SECRET}",
        f"authorization: AWS4-HMAC-SHA256 {SECRET}",
        f"AccountKey={SECRET};EndpointSuffix=core.windows.net",
        f'{{"aws_secret_access_key": "{SECRET}"}}',
        f"x-amz-security-token: {SECRET}",
        f"<SecretAccessKey>{SECRET}</SecretAccessKey>",
        f"X-Amz-Signature={SECRET}",
    ],
)
def test_credentials_are_cut_out(text: str) -> None:
    assert SECRET not in redacted(text)


def test_bare_keys_are_cut_out() -> None:
    shown = redacted("id AKIAIOSFODNN7EXAMPLE and wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY0")
    assert shown == "id *** and ***"


def test_the_rest_stays() -> None:
    text = "PUT http://127.0.0.1:9000/bucket/data/log/00000000000000000000000000000000000000000017.sst: 503 SlowDown"
    assert redacted(text) == text
    assert len(redacted("long " * 1000)) == MAX_DETAIL_CHARS
    assert redacted("two\n lines") == "two lines"
