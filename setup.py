"""Installs what settings.ini says: version, requirements, the extras, the console script; README.md is the long description.

A wheel also holds the part of data/ that the library needs; an editable install reads the checkout's."""
import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PACKED = "microworld", "paper", "checkpoints/sentnb-small"

here = Path(__file__).resolve().parent
parser = ConfigParser(delimiters=["="])
parser.read(here/"settings.ini", encoding="utf-8")
settings = parser["DEFAULT"]
lines = (line.split(":", 1) for line in settings["extra_requirements"].strip().splitlines())
extras = {name.strip(): wanted.split() for name, wanted in lines}
statuses = ["1 - Planning", "2 - Pre-Alpha", "3 - Alpha", "4 - Beta", "5 - Production/Stable", "6 - Mature",
            "7 - Inactive"]


class WithData(build_py):
    "Lays the packed folders into sentnb/_data, where `core.data_dir` looks for them without a checkout."
    def run(self):
        super().run()
        if self.editable_mode: return
        for name in PACKED:
            target = Path(self.build_lib)/settings["lib_path"]/"_data"/name
            shutil.copytree(here/"data"/name, target, dirs_exist_ok=True)


setup(
    name=settings["lib_name"],
    version=settings["version"],
    description=settings["description"],
    long_description=(here/"README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=settings["author"],
    license="Apache-2.0",
    keywords=settings["keywords"].split(),
    classifiers=[
        f"Development Status :: {statuses[int(settings['status']) - 1]}",
        f"Intended Audience :: {settings['audience']}",
        f"Natural Language :: {settings['language']}",
        "Programming Language :: Python :: 3",
    ],
    python_requires=f">={settings['min_python']}",
    install_requires=settings["requirements"].split(),
    extras_require={"dev": settings["dev_requirements"].split(), **extras},
    entry_points={
        "console_scripts": settings["console_scripts"].split(),
        "nbdev": [f"{settings['lib_name']}={settings['lib_path']}._modidx:d"],
    },
    packages=find_packages(include=[settings["lib_path"], f"{settings['lib_path']}.*"]),
    cmdclass={"build_py": WithData},
    zip_safe=False,
)
