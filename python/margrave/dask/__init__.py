"""Margrave on Dask: searches, linear and kernel models over the workers of a cluster.

Everything runs as short tasks that are functions of their arguments. There are no sockets and no processes besides Dask's:
if a worker is lost, Dask repeats its tasks, and the result has the same bits. Needs ``pip install 'margrave[dask]'``.
"""

from ._kernel import DaskSVC, DaskSVR
from ._linear import DaskLinearSVC, DaskLinearSVR
from ._ridge import DaskKernelRidge
from ._search import DaskSVCCV, DaskSVRCV

__all__ = [
    "DaskKernelRidge",
    "DaskLinearSVC",
    "DaskLinearSVR",
    "DaskSVC",
    "DaskSVCCV",
    "DaskSVR",
    "DaskSVRCV",
]
