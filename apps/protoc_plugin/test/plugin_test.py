#!/usr/bin/env python3
"""plugin_test.py PROTOC PLUGIN: what protoc-gen-hawser generates and refuses, as protoc reports it."""

import pathlib
import subprocess
import sys
import tempfile

MESSAGES = "message A {} message B { message Inner {} }\n"


def generate(text, *options, syntax="proto3"):
    """Returns the exit status, the messages of protoc, and the generated header."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "one.proto").write_text(f'syntax = "{syntax}";\n{text}', encoding="utf-8")
        result = subprocess.run([sys.argv[1], f"--proto_path={folder}", f"--plugin=protoc-gen-hawser={sys.argv[2]}",
                                 f"--hawser_out={folder}", *options, "one.proto"],
                                cwd=folder, capture_output=True, text=True)
        header = pathlib.Path(folder) / "one.hawser.h"
        return result.returncode, result.stderr, header.read_text(encoding="utf-8") if header.exists() else ""


def accept(text, *expected, syntax="proto3"):
    status, errors, header = generate(text, syntax=syntax)
    assert status == 0, errors
    for part in expected:
        assert part in header, f"{part!r} is missing in\n{header}"


def refuse(text, *expected, options=()):
    status, errors, header = generate(text, *options)
    assert status != 0 and not header, f"accepted: {text}"
    for part in expected:
        assert part in errors, f"{part!r} is missing in {errors!r}"


def main():
    accept("package a.b; " + MESSAGES + "service S { rpc M(A) returns (B.Inner); }",
           "namespace a::b {", "const ::a::b::A& request", "Result<::a::b::B_Inner>>", '"a.b.S/M"',
           "method_name_override<&::a::b::S::M>")
    accept(MESSAGES + "service S { rpc M(stream A) returns (stream B); }",
           "Reader<::A> requests", "Writer<::B> replies", "Result<void>>", '"S/M"')
    accept("package a; " + MESSAGES, "#pragma once")
    accept("package a; " + MESSAGES + "service S {}", "class S {")
    accept("package a; message A { optional string x = 1; } service S { rpc M(A) returns (A); }", "Task<")
    accept("package a; message A { required string x = 1; } service S { rpc M(A) returns (A); }", "Task<",
           syntax="proto2")
    accept('package a; import "google/protobuf/empty.proto";'
           "service S { rpc M(google.protobuf.Empty) returns (google.protobuf.Empty); }", "::google::protobuf::Empty")
    # A comment of the .proto file cannot end the comment in the header.
    accept("package a; " + MESSAGES + "// first \\\n// second\nservice S { rpc M(A) returns (A); }", "// second")
    # Names that C++ or the generated class uses.
    accept("package a; " + MESSAGES + "service S { rpc delete(A) returns (A); rpc Stub(A) returns (A); "
           "rpc S(A) returns (A); }", "delete_(", "Stub_(", "S_(", '"a.S/delete"', '"a.S/Stub"', '"a.S/S"')
    accept("package a; " + MESSAGES + "service union { rpc M(A) returns (A); }", "class union_ {", '"a.union/M"')
    accept("package a; " + MESSAGES + "service Via { rpc Via(A) returns (A); rpc hawser_via_(A) returns (A); }",
           "class Via::Stub {", "template <class HawserVia>", "auto hawser_via__(")
    accept("package a; " + MESSAGES + "service S { rpc Request(A) returns (A); rpc Options(stream A) returns (A); }",
           "auto Request(HawserRequest&& request)", "auto Options(HawserOptions&& options)")
    accept("package a; " + MESSAGES + "service HawserVia { rpc linux(A) returns (A); }", "class HawserVia_ {", "linux_(")
    refuse("package a; " + MESSAGES + "service S { rpc Stub(A) returns (A); rpc Stub_(A) returns (A); }",
           "one.proto", "a.S", "'Stub_'", "Rename one of the two methods")
    refuse("package a; option cc_generic_services = true; " + MESSAGES + "service S { rpc M(A) returns (A); }",
           "one.proto", "cc_generic_services", "remove the option")
    refuse("package a; " + MESSAGES, "protoc-gen-hawser has no options, and 'x=1' was given",
           options=("--hawser_opt=x=1",))


if __name__ == "__main__":
    main()
