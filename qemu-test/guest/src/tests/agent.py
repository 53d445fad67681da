# SPDX-License-Identifier: MIT OR Apache-2.0
# Reads what an agent has pushed with the code that protoc generates of the published schemas, and
# prints it as JSON: samples by innermost function of the program "shares", and sums of metrics.
#
# Input: a folder with the files pprof, profiles and metrics, as they were sent.
import collections
import glob
import gzip
import json
import os
import subprocess
import sys

folder = sys.argv[1]
otlp = [
    "common/v1/common",
    "resource/v1/resource",
    "metrics/v1/metrics",
    "profiles/v1development/profiles",
    "collector/metrics/v1/metrics_service",
    "collector/profiles/v1development/profiles_service",
]
subprocess.check_call(
    ["protoc", "--descriptor_set_in=/payload/otlp.descriptors", "--python_out=" + folder]
    + ["opentelemetry/proto/" + name + ".proto" for name in otlp]
)
pprof = glob.glob("/usr/share/gocode/src/github.com/google/pprof/proto/profile.proto")[0]
subprocess.check_call(
    ["protoc", "-I" + os.path.dirname(pprof), "--python_out=" + folder, pprof]
)
sys.path.insert(0, folder)
import profile_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2


def body(name):
    return gzip.open(os.path.join(folder, name)).read()


def of_pprof():
    profile = profile_pb2.Profile.FromString(body("pprof"))
    text = profile.string_table
    assert text[0] == "", text[0]
    kinds = [(text[one.type], text[one.unit]) for one in profile.sample_type]
    assert kinds == [("samples", "count"), ("cpu", "nanoseconds")], kinds
    locations = {one.id: one for one in profile.location}
    functions = {one.id: one for one in profile.function}
    sums = collections.Counter()
    for sample in profile.sample:
        labels = {text[one.key]: text[one.str] for one in sample.label}
        if labels.get("comm") == "shares" and sample.location_id:
            lines = locations[sample.location_id[0]].line
            name = text[functions[lines[0].function_id].name] if lines else ""
            sums[name] += sample.value[0]
    assert profile.period == 1000000000 // 499, profile.period
    return sums


def of_profiles():
    request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(body("profiles"))
    tables = request.dictionary
    text = tables.string_table
    for name, table in (
        ("mapping", tables.mapping_table),
        ("location", tables.location_table),
        ("function", tables.function_table),
        ("attribute", tables.attribute_table),
        ("stack", tables.stack_table),
        ("link", tables.link_table),
    ):
        assert table[0] == type(table[0])(), name
    sums = collections.Counter()
    for resource in request.resource_profiles:
        names = {one.key: one.value.string_value for one in resource.resource.attributes}
        assert names["service.name"] == "nsprobe" and names["host.name"], names
        for profile in (one for scope in resource.scope_profiles for one in scope.profiles):
            kind = profile.sample_type
            kind = (text[kind.type_strindex], text[kind.unit_strindex])
            assert kind == ("cpu", "nanoseconds"), kind
            for sample in profile.samples:
                keys = [tables.attribute_table[at] for at in sample.attribute_indices]
                labels = {text[one.key_strindex]: one.value.string_value for one in keys}
                stack = tables.stack_table[sample.stack_index].location_indices
                if labels.get("thread.name") != "shares" or not stack:
                    continue
                place = tables.location_table[stack[0]]
                name = ""
                if place.lines:
                    name = tables.function_table[place.lines[0].function_index].name_strindex
                    name = text[name]
                    file = tables.mapping_table[place.mapping_index]
                    assert text[file.filename_strindex], place
                sums[name] += sample.values[0] // profile.period
    return sums


def of_metrics():
    request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body("metrics"))
    sums = collections.defaultdict(dict)
    scopes = (scope for one in request.resource_metrics for scope in one.scope_metrics)
    for metric in (one for scope in scopes for one in scope.metrics):
        for point in metric.sum.data_points:
            names = {one.key: one.value.string_value for one in point.attributes}
            assert point.time_unix_nano > point.start_time_unix_nano > 0, point
            sums[metric.name][names.get("thread.name", "")] = point.as_double
    return sums


def named(sums):
    return {name: count for name, count in sums.items() if name.startswith("share_")}


print(
    json.dumps(
        {
            "pprof": named(of_pprof()),
            "profiles": named(of_profiles()),
            "metrics": of_metrics(),
        }
    )
)
