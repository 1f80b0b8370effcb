"""Prints a bill of materials (CycloneDX 1.5, JSON) of the program `margrave` as released, from `cargo metadata`."""

import hashlib
import json
import subprocess

ROOT = "margrave-cli"
# Dependencies that only other systems have are not listed.
PLATFORM = "x86_64-unknown-linux-gnu"


def main():
    """Walks from the program over normal dependencies; what is only needed to build or test is not shipped."""
    run = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM]
    metadata = json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(key for key, package in packages.items() if package["name"] == ROOT)
    lock = checksums()
    seen, todo = {}, [root]
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        needs = [d["pkg"] for d in nodes[key]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        seen[key] = needs
        todo.extend(needs)
    # A number that depends on the contents alone, so that the same sources give the same file.
    digest = hashlib.sha256("\n".join(sorted(reference(packages[key]) for key in seen)).encode()).hexdigest()
    serial = f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": component(packages[root], lock, "application")},
        "components": [
            component(packages[key], lock, "library") for key in sorted(seen, key=name_of(packages)) if key != root
        ],
        "dependencies": [
            {"ref": reference(packages[key]), "dependsOn": sorted(reference(packages[need]) for need in seen[key])}
            for key in sorted(seen, key=name_of(packages))
        ],
    }
    print(json.dumps(bill, indent=1))


def name_of(packages):
    """The order of components."""
    return lambda key: (packages[key]["name"], packages[key]["version"])


def checksums():
    """SHA-256 of every package in Cargo.lock that has one, by name and version."""
    found, entry = {}, {}
    with open("Cargo.lock", encoding="utf-8") as file:
        for line in file:
            if line.startswith("[[package]]"):
                entry = {}
            elif " = " in line:
                key, value = line.rstrip("\n").split(" = ", 1)
                entry[key] = value.strip('"')
                if key == "checksum":
                    found[entry["name"], entry["version"]] = entry["checksum"]
    return found


def reference(package):
    """The package URL."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, lock, kind):
    """One entry of the bill."""
    entry = {
        "type": kind,
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["description"]:
        entry["description"] = " ".join(package["description"].split())
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = lock.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


if __name__ == "__main__":
    main()
