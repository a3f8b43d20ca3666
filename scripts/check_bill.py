#!/usr/bin/env python3
"""Reads a bill of materials back, and what a program of packages says of its crates.

Usage: scripts/check_bill.py BILL TRIPLE CARGO-ARGUMENT...
       scripts/check_bill.py BILL --program FILE
The first requires the format, each crate's name, version, purl and licence, and as many crates as `cargo tree` prints. The second
requires that the data of cargo-auditable in the program (section .dep-v0) has the same crates as the bill, and the same of them linked.
Neither shares code with scripts/bill.py. The first also asks cyclonedx-python-lib, where it is installed.
"""
import json
import os
import subprocess
import sys
import zlib


def require(holds, what):
    if not holds:
        sys.exit(f"check_bill: {sys.argv[1]}: {what}")


def check_format(text):
    bill = json.loads(text)
    require(bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5", "not CycloneDX 1.5")
    everything = [bill["metadata"]["component"], *bill["components"]]
    for entry in everything:
        for key in ("type", "name", "version", "purl", "licenses", "bom-ref"):
            require(entry.get(key), f"{entry.get('name')} has no {key}")
        require(entry["purl"].endswith(f"@{entry['version']}"), f"{entry['name']}: the purl has another version")
        require(entry["purl"].startswith("pkg:generic/") or entry.get("hashes"), f"{entry['name']} has no checksum")
    references = {entry["bom-ref"] for entry in everything}
    require(len(references) == len(everything), "two crates have one reference")
    require({of["ref"] for of in bill["dependencies"]} == references, "the dependencies are of other crates")
    require(all(references.issuperset(of["dependsOn"]) for of in bill["dependencies"]), "a dependency is not in the bill")
    return everything


def check_count(everything, triple, arguments):
    lines = subprocess.run(
        ["cargo", "tree", "--locked", "--prefix", "none", "--edges", "normal,build", "--target", triple, *arguments],
        check=True, capture_output=True, text=True).stdout.splitlines()
    crates = {tuple(line.split()[:2]) for line in lines if line}
    require(len(crates) == len(everything), f"{len(everything)} crates, where cargo tree has {len(crates)}")


def check_with_library(text):
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        return ""
    error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    require(error is None, f"cyclonedx-python-lib: {error}")
    return ", valid for cyclonedx-python-lib"


def audit_data(program):
    # readelf knows programs of every architecture, which objcopy may not.
    headers = subprocess.run(["readelf", "-SW", program], check=True, capture_output=True, text=True).stdout
    fields = [line.split("]")[1].split() for line in headers.splitlines() if " .dep-v0 " in line]
    require(len(fields) == 1, f"{program} has no section .dep-v0")
    offset, size = (int(field, 16) for field in fields[0][3:5])
    with open(program, "rb") as file:
        file.seek(offset)
        return json.loads(zlib.decompress(file.read(size)))["packages"]


def check_program(everything, program):
    packages = audit_data(program)
    require([of["name"] for of in packages if of.get("root")] == [everything[0]["purl"].split("/")[1].split("@")[0]],
            f"{program}: its root is another crate")
    # Runtime is the default.
    said = {(of["name"], of["version"], of.get("kind", "runtime") == "runtime") for of in packages}
    bill = {(of["purl"].split("/")[1].split("@")[0], of["version"], of["scope"] == "required") for of in everything}
    require(said == bill, f"{program} has other crates: {sorted(said ^ bill)[:8]}")
    return f"{len(said)} crates, {sum(linked for _, _, linked in said)} of them linked, in {os.path.basename(program)} too"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        text = file.read()
    everything = check_format(text)
    if sys.argv[2] == "--program":
        said = check_program(everything, sys.argv[3])
    else:
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
        check_count(everything, sys.argv[2], sys.argv[3:])
        said = f"{len(everything)} crates{check_with_library(text)}"
    print(f"ok   {os.path.basename(sys.argv[1])}: {said}")


main()
