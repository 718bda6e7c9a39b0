"""Estimators with scikit-learn's interface: classify, regress and forecast series.

They need the extra `[estimators]`; `import roann` does not import them.
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as missing:  # one sentence in place of a chain of imports
    raise ModuleNotFoundError(
        "roann.estimators needs scikit-learn; install it with: pip install 'roann[estimators]'",
        name=missing.name,
    ) from None

from roann.estimators.callbacks import Callback, Checkpoint, Log, Progress, Schedule, TensorBoard
from roann.estimators.classifier import RoaClassifier
from roann.estimators.features import RoaFeatures, fixed_classifier, fixed_regressor
from roann.estimators.forecaster import RoaForecaster
from roann.estimators.regressor import RoaRegressor
from roann.estimators.settings import Options
from roann.ts import TsFile, read_ts

__all__ = [
    "Callback",
    "Checkpoint",
    "Log",
    "Options",
    "Progress",
    "RoaClassifier",
    "RoaFeatures",
    "RoaForecaster",
    "RoaRegressor",
    "Schedule",
    "TensorBoard",
    "TsFile",
    "fixed_classifier",
    "fixed_regressor",
    "read_ts",
]
