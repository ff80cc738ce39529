"""What is shown of a storage's URI."""

from urllib.parse import unquote

import pytest

from fedgps_ray.results.uri import redacted, without_secrets


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("file:///results", "file:///results"),
        ("/results", "/results"),
        ("hdfs://host:8020/x", "hdfs://host:8020/x"),
        ("s3://KEY:SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:a/SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:a@SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:a SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY%3ASECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:SECRET%40bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:SECRET", "s3:***"),
        ("s3://KEY:SEC?RET@bucket", "s3:***"),
        ("s3://KEY:SEC?a=RET@bucket", "s3:***"),
        ("s3:/KEY:SECRET@bucket", "s3:***"),
        ("s3:KEY:SECRET@bucket", "s3:***"),
        ("KEY:SECRET@bucket", "***"),
        ("s3://b/x?secret_key=SECRET&region=eu", "s3://b/x?secret_key=***&region=eu"),
        ("abfs://a.windows.net/c?sv=1&sig=SECRET", "abfs://a.windows.net/c?sv=***&sig=***"),
        ("s3://b?endpoint_override=http://KEY:SECRET@h:9", "s3://b?endpoint_override=http://h:9"),
        (
            "s3://b?endpoint_override=http%3A%2F%2FKEY%3ASECRET%40h",
            "s3://b?endpoint_override=http://h",
        ),
    ],
)
def test_a_uri_is_shown_without_secrets(uri, shown):
    assert redacted(uri) == shown
    told = without_secrets(f"cannot parse {uri!r}, or {unquote(uri)!r}", uri)
    assert "SECRET" not in told
    assert "KEY" not in told


def test_a_secret_is_found_in_what_a_library_says():
    uri = "s3://KEY:a%2FSECRET@bucket"
    assert "SECRET" not in without_secrets("no login KEY with a/SECRET at bucket", uri)
    assert without_secrets("no bucket", uri) == "no bucket"
