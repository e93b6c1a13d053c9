"""The wheel's modules for Spark, as Spark imports them: without pyspark, beside one, and without what the engine needs.

The argument is a folder with pyspark, and a format of somebody else.
"""

import io
import sys

import pyspark_slate
import pyspark_slate_changes
import pyspark_slate_collection

MODULES = {
    "slate": pyspark_slate,
    "slate-changes": pyspark_slate_changes,
    "slate-collection": pyspark_slate_collection,
}
assert not any(hasattr(module, "DefaultSource") for module in MODULES.values()), "there is no pyspark"
for module in MODULES.values():
    del sys.modules[module.__name__]

sys.path.append(sys.argv[1])
from pyspark.serializers import CPickleSerializer, read_int  # noqa: E402
from pyspark.sql.worker.lookup_data_sources import _main  # noqa: E402

told = io.BytesIO()
_main(io.BytesIO(), told)
told.seek(0)
found = {}
for _ in range(read_int(told)):
    name = told.read(read_int(told)).decode()
    found[name] = CPickleSerializer().loads(told.read(read_int(told)))
assert found.keys() == {*MODULES, "other"}, found
assert "slate_async" not in sys.modules, "found, not used"

for name in MODULES:
    source = found[name](options={"path": "/db"})
    assert name == "slate-collection" or source.schema().names[-1] == "expire_time"  # a collection is asked for its own
    assert source.name() == name
    for module in [module for module in sys.modules if module.partition(".")[0] == "slate_async"]:
        del sys.modules[module]
sys.modules["slate_async"] = None


def refused(name: str) -> str:
    try:
        found[name](options={"path": "/db"})
    except ImportError as error:
        return str(error)
    return ""


assert all("slate-async[spark] is not fully installed" in refused(name) for name in MODULES)
print("smoke: Spark finds the formats of the installed package")
