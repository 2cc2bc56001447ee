"""What travels to executors and back."""

from headwater.lake.tasks import VERSION, Task, decode_task, encode, public
from headwater.settings.objects import StoreOptions
from tests.support.promise import promise

PROMISES = ("T1", "S3", "M7")

OPTIONS = StoreOptions(
    encryption="sse-kms",
    kms_key="key-1",
    attempt_ms=7_000,
    provider={
        "endpoint": "http://127.0.0.1:9000",
        "aws_region": "mars",
        "secret_access_key": "secret",
        "AWS_SESSION_TOKEN": "token",
        "account_key": "secret",
    },
)


@promise("M7")
def test_options_travel() -> None:
    """Executors encrypt what the settings want encrypted."""
    task = Task(VERSION, "s3://bucket", [], public(OPTIONS))
    found = decode_task(encode(task))
    assert found == task
    assert (found.options.encryption, found.options.kms_key, found.options.attempt_ms) == ("sse-kms", "key-1", 7_000)


@promise("S3")
def test_credentials_do_not() -> None:
    assert public(OPTIONS).provider == {"endpoint": "http://127.0.0.1:9000", "aws_region": "mars"}
    data = encode(Task(VERSION, "s3://bucket", [], public(OPTIONS)))
    assert b"secret" not in data
    assert b"token" not in data
