"""The table of the fields of a request, and what has to agree with it."""

import dataclasses
import inspect
import json
import subprocess
import sys

import pytest

from collsim import simulate
from collsim.cli.config import APART, READ, READERS
from collsim.cli.options import OPTIONS, SHOWN
from collsim.cli.run import READ_FIRST
from collsim.cli.texts import PAIRS
from collsim.report import schema
from collsim.simulation.request.fields import BOUNDS, BY_NAME, FIELDS, Request
from collsim.simulation.request.request import OF_A_MACHINE, WITHOUT_TOPOLOGY


def test_parameters_of_simulate_are_the_fields_in_their_order():
    parameters = inspect.signature(simulate).parameters.values()
    assert [parameter.name for parameter in parameters] == [entry.name for entry in FIELDS]
    defaults = [None if parameter.default is parameter.empty else parameter.default for parameter in parameters]
    assert defaults == [entry.default for entry in FIELDS]


def test_documentation_of_simulate_names_every_field():
    told = inspect.getdoc(simulate).partition("Returns")[0]
    for entry in FIELDS:
        assert any(entry.name in line.partition(":")[0] for line in told.splitlines()), entry.name


def test_every_field_has_a_flag_and_every_flag_belongs_to_a_field():
    assert set(OPTIONS) == set(BY_NAME)
    assert {*SHOWN, *READ_FIRST} <= set(BY_NAME)


def test_values_of_a_checked_question_belong_to_fields():
    apart = (*OF_A_MACHINE, *BOUNDS)
    attributes = {entry.attribute or entry.name for entry in FIELDS if entry.name not in apart}
    inner = {"element_bytes", "at_once", "of_log", "one_of_many"}
    assert attributes | inner == {each.name for each in dataclasses.fields(Request)}


@pytest.mark.parametrize("name", [name for name in WITHOUT_TOPOLOGY if BY_NAME[name].check])
def test_defaults_pass_their_checks(name):
    BY_NAME[name].checked(BY_NAME[name].default)


def test_a_configuration_is_read_field_by_field():
    recorded = {entry.config_key for entry in FIELDS if entry.config_key}
    assert {*READ, *APART} == recorded
    assert {entry.kind for entry in READ.values()} <= set(READERS)
    assert {entry.name for entry in FIELDS if entry.kind == "pairs"} == set(PAIRS)


@pytest.mark.parametrize("document", ["collsim.config/1", "collsim.result/1"])
def test_schemas_say_what_the_fields_say(document):
    properties = {entry.config_key: entry.schema for entry in FIELDS if entry.schema}
    config = schema(document)["properties"]["config"]
    if "properties" in config:  # else it is that of a configuration
        assert config["properties"] == json.loads(json.dumps(properties)), "run tools/config_schema.py"
        assert set(config["required"]) == set(properties)
    else:
        assert document != "collsim.config/1"
        assert "config" in json.dumps(config)


def test_a_result_records_every_field():
    result = simulate("hgx_h100", "all_reduce", "1M", profile="ideal")
    assert list(result.config) == list(dict.fromkeys(entry.config_key for entry in FIELDS if entry.config_key))


def test_the_table_brings_no_array_library():
    code = "import sys, collsim.simulation.request.fields; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
