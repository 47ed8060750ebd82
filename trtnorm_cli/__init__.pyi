from trtnorm_cli.api import build as build
from trtnorm_cli.api import compare as compare
from trtnorm_cli.api import export as export
from trtnorm_cli.api import inspect as inspect
from trtnorm_cli.api import rewrite as rewrite
from trtnorm_cli.errors import TrtnormError as TrtnormError
from trtnorm_cli.export.options import ExportOptions as ExportOptions
from trtnorm_cli.pipeline import BuildOptions as BuildOptions
from trtnorm_cli.tensorrt.manifest import Manifest as Manifest

__version__: str
