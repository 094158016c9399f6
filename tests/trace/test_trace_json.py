import copy
import json

import jsonschema
import pytest

from course_lib.errors import InvalidInputError
from course_lib.tensor import Linear, Sequential, Tensor, relu
from course_lib.trace import Trace, record, schema


@pytest.fixture
def trace():
    import numpy as np

    rng = np.random.default_rng(0)
    model = Sequential(Linear(4, 8, rng=rng), relu, Linear(8, 2, rng=rng))
    with record() as trace:
        model(Tensor(rng.normal(size=(3, 4)).astype("float32"))).sum().backward()
    return trace


def test_a_trace_file_follows_the_published_schema(trace, tmp_path):
    jsonschema.Draft202012Validator.check_schema(schema())
    path = tmp_path / "trace.json"
    trace.to_json(path)
    jsonschema.validate(json.loads(path.read_text()), schema(), cls=jsonschema.Draft202012Validator)


def test_the_round_trip_is_exact(trace, tmp_path):
    trace.to_json(tmp_path / "a.json")
    back = Trace.from_json(tmp_path / "a.json")
    assert back == trace
    assert (back.saved_bytes, back.peak_bytes, back.work) == (trace.saved_bytes, trace.peak_bytes, trace.work)
    back.to_json(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_an_empty_trace_survives(tmp_path):
    Trace(attention_convention="flash").to_json(tmp_path / "empty.json")
    assert Trace.from_json(tmp_path / "empty.json") == Trace(attention_convention="flash")


def _drop(data):
    del data["events"][0]["work"]


def _text_for_count(data):
    data["events"][0]["work"]["flops"] = "12"


def _fraction(data):
    data["storages"][0]["nbytes"] = 1.5


def _negative_shape(data):
    data["events"][0]["inputs"][0]["shape"] = [-1]


def _unknown_phase(data):
    data["events"][0]["phase"] = "sideways"


def _unknown_kind(data):
    data["storages"][0]["kind"] = "cache"


def _extra(data):
    data["events"][0]["note"] = "hello"


def _convention(data):
    data["attention_convention"] = "fast"


def _number_for_name(data):
    data["events"][0]["op"] = 5


DAMAGES = (_drop, _text_for_count, _fraction, _negative_shape, _unknown_phase, _unknown_kind, _extra, _convention,
           _number_for_name)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_reader_and_schema_refuse_the_same_damage(damage, trace, tmp_path):
    data = copy.deepcopy(trace.to_dict())
    damage(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema(), cls=jsonschema.Draft202012Validator)
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(InvalidInputError):
        Trace.from_json(tmp_path / "bad.json")


@pytest.mark.parametrize(("text", "message"), [("{", "JSON"), ("[]", "schema_version"), ('{"schema_version": 9}', "9")])
def test_a_file_that_is_no_trace_is_refused(text, message, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        Trace.from_json(tmp_path / "bad.json")


def test_a_missing_file_and_an_unwritable_path_are_named(tmp_path, trace):
    with pytest.raises(InvalidInputError, match=r"absent\.json"):
        Trace.from_json(tmp_path / "absent.json")
    with pytest.raises(InvalidInputError, match="nowhere"):
        trace.to_json(tmp_path / "nowhere" / "trace.json")
