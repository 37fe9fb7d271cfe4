"""Print the blocks of requirements.lock, with hashes, for the packages that the images install.

These are the core, the extras, and the packages of the checkout's Airflow, the example and the project's installation.
Their dependencies are not printed: the whole lock file, used as constraints, has their versions and hashes.
"""

import re
import tomllib
from pathlib import Path

EXTRAS = (
    "airflow", "clouds", "delta", "delta-spark", "dialects", "iceberg", "kafka", "kafka-avro", "kafka-sink", "postgres",
    "quality", "s3", "spark",
)  # fmt: skip
GROUPS = ("build", "demo")


def name_of(requirement: str) -> str:
    """`pyarrow` for `pyarrow>=20`, as requirements.lock spells names."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def named(project: str, lock: str) -> list[str]:
    """The lock file's blocks (a version and its hashes) of the project's packages.

    Raises ValueError if one is missing.
    """
    document = tomllib.loads(project)
    extras = [text for extra in EXTRAS for text in document["project"]["optional-dependencies"][extra]]
    groups = [text for group in GROUPS for text in document["dependency-groups"][group]]
    wanted = {name_of(text) for text in (*document["project"]["dependencies"], *extras, *groups)} - {
        document["project"]["name"]
    }
    blocks = {name_of(block): block for block in re.split(r"\n(?=\w)", lock) if block.strip()}
    if missing := wanted - blocks.keys():
        raise ValueError(f"requirements.lock lacks {', '.join(sorted(missing))}. Run `make lock`.")
    return [blocks[name] for name in sorted(wanted)]


if __name__ == "__main__":
    print("\n".join(named(Path("pyproject.toml").read_text(), Path("requirements.lock").read_text())))
