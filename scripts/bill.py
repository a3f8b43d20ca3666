#!/usr/bin/env python3
"""Prints which crates a program is made of, as `cargo tree` has them: those of its features, not those of the whole workspace.

Usage: scripts/bill.py cyclonedx|auditable NAME TRIPLE CARGO-ARGUMENT...
  cyclonedx  a bill of materials in CycloneDX 1.5, of a program NAME
  auditable  what cargo-auditable reads in CARGO_SBOM_PATH: the format of cargo's own, which stable releases do not write yet
Crates that run only while it is built (build scripts, procedural macros and what these need) are marked: `scope` is `excluded`, or
the dependency is one of kind `build`. SOURCE_DATE_EPOCH is the time of the bill.
"""
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import uuid

LINE = re.compile(r"^(\d+)(\S+) v(\S+)( \(proc-macro\))?( \(/[^|]*\))?\|([^|]*)\|([^|]*?)( \(\*\))?$")


class Crate:
    def __init__(self, name, version, macro, local, license, repository):
        self.name, self.version, self.macro, self.local = name, version, macro, local
        # Older manifests have a slash for OR.
        self.license, self.repository = license.replace("/", " OR "), repository
        self.key = (name, version)
        self.normal, self.build = set(), set()


def tree(edges, triple, arguments):
    """Returns all crates by key, the root's key, and the edges between them."""
    output = subprocess.run(
        ["cargo", "tree", "--locked", "--prefix", "depth", "--edges", edges, "--target", triple, "--format", "{p}|{l}|{r}", *arguments],
        check=True, capture_output=True, text=True).stdout
    crates, pairs, path = {}, set(), []
    for line in filter(None, output.splitlines()):
        match = LINE.match(line)
        if not match:
            sys.exit(f"bill: cargo tree prints a line that is not known: {line}")
        depth, name, version, macro, local, license, repository, _ = match.groups()
        crate = crates.setdefault((name, version), Crate(name, version, bool(macro), bool(local), license, repository))
        del path[int(depth):]
        if path:
            pairs.add((path[-1], crate.key))
        path.append(crate.key)
    return crates, next(iter(crates)), pairs


def graph(triple, arguments):
    _, _, linked = tree("normal", triple, arguments)
    crates, root, pairs = tree("normal,build", triple, arguments)
    for parent, child in pairs:
        # A macro runs in the compiler.
        kind = "normal" if (parent, child) in linked and not crates[child].macro else "build"
        getattr(crates[parent], kind).add(child)
    return dict(sorted(crates.items())), root


def linked(crates, root):
    reached, waiting = set(), [root]
    while waiting:
        key = waiting.pop()
        if key not in reached:
            reached.add(key)
            waiting += crates[key].normal
    return reached


def purl(crate):
    # Crates of the workspace are in no registry.
    return f"pkg:{'generic' if crate.local else 'cargo'}/{crate.name}@{crate.version}"


def component(crate, checksums, needed):
    if not crate.license:
        sys.exit(f"bill: {crate.name} {crate.version} names no licence")
    entry = {
        "type": "library", "bom-ref": purl(crate), "name": crate.name, "version": crate.version,
        "scope": "required" if needed else "excluded", "licenses": [{"expression": crate.license}], "purl": purl(crate),
    }
    if crate.key in checksums:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksums[crate.key]}]
    if crate.repository and not crate.local:
        entry["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return entry


def cyclonedx(name, triple, crates, root):
    with open("Cargo.lock", "rb") as file:
        locked = {(p["name"], p["version"]): p["checksum"] for p in tomllib.load(file)["package"] if "checksum" in p}
    when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    needed = linked(crates, root)
    main = component(crates[root], locked, True)
    main.update(type="application", name=name, properties=[{"name": "pagehaul:target", "value": triple}])
    components = [component(crate, locked, key in needed) for key, crate in crates.items() if key != root]
    content = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{name} {triple} {when} {content}')}",
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)), "component": main},
        "components": components,
        "dependencies": [
            {"ref": purl(crate), "dependsOn": sorted(purl(crates[child]) for child in crate.normal | crate.build)}
            for crate in crates.values()
        ],
    }


def auditable(crates, root):
    index = {key: at for at, key in enumerate(crates)}
    source = "path+file:///pagehaul", "registry+https://github.com/rust-lang/crates.io-index"
    return {
        "version": 1, "root": index[root],
        "crates": [
            {
                "id": f"{source[not crate.local]}#{crate.name}@{crate.version}",
                "kind": ["proc-macro" if crate.macro else "bin" if key == root else "lib"], "features": [],
                "dependencies": [{"index": index[child], "kind": "normal"} for child in sorted(crate.normal)]
                + [{"index": index[child], "kind": "build"} for child in sorted(crate.build)],
            }
            for key, crate in crates.items()
        ],
        # cargo-auditable wants these and does not use them.
        "rustc": {"version": "", "wrapper": None, "workspace_wrapper": None, "commit_hash": "", "host": "", "verbose_version": ""},
    }


def main():
    if len(sys.argv) < 5 or sys.argv[1] not in ("cyclonedx", "auditable"):
        sys.exit(__doc__)
    form, name, triple, *arguments = sys.argv[1:]
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    crates, root = graph(triple, arguments)
    bill = cyclonedx(name, triple, crates, root) if form == "cyclonedx" else auditable(crates, root)
    json.dump(bill, sys.stdout, indent=2)
    print()


main()
