"""What readers are told about the object store."""

from headwater.lake.tables.storage import reader_properties
from tests.support.promise import promise

PROMISES = ("M7", "S3")

OWN = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
}


@promise("M7")
def test_where_an_s3_server_is() -> None:
    """Endpoint, style of addresses and region by Iceberg's names, and nothing else of the environment."""
    assert reader_properties("s3://bucket/prefix", OWN, {}, {}) == {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.path-style-access": "true",
        "s3.region": "eu-west-1",
        "client.region": "eu-west-1",
    }


@promise("M7")
def test_buckets_in_host_names() -> None:
    told = reader_properties("s3://bucket", {**OWN, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}, {}, {})
    assert told["s3.path-style-access"] == "false"


@promise("M7")
def test_amazon_needs_a_region_alone() -> None:
    assert reader_properties("s3://bucket", {"AWS_DEFAULT_REGION": "eu-west-1"}, {}, {}) == {
        "s3.region": "eu-west-1",
        "client.region": "eu-west-1",
    }


@promise("M7")
def test_settings_of_the_store_count_more_than_the_environment() -> None:
    provider = {"endpoint": "https://other.example.org", "aws_region": "mars", "secret_access_key": "secret"}
    assert reader_properties("s3://bucket", OWN, provider, {}) == {
        "s3.endpoint": "https://other.example.org",
        "s3.path-style-access": "true",
        "s3.region": "mars",
        "client.region": "mars",
    }


@promise("M7")
def test_other_stores_need_nothing() -> None:
    assert reader_properties("file:///data", OWN, {}, {}) == {}
    assert reader_properties("gs://bucket", OWN, {}, {}) == {}


@promise("M7", "S3")
def test_settings_count_more() -> None:
    """Credentials are told if the settings name them, and then only those."""
    own = {
        "s3.endpoint": "https://storage.example.org",
        "s3.access-key-id": "readers",
        "s3.secret-access-key": "public",
    }
    told = reader_properties("s3://bucket", OWN, {}, own)
    assert told["s3.endpoint"] == "https://storage.example.org"
    assert told["s3.secret-access-key"] == "public"
    assert "secret" not in told.values()
