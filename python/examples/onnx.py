# %% [markdown]
# # Export to ONNX
# Predicting with the file needs neither Margrave nor scikit-learn.

# %%
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from margrave import SVC, export_onnx

X, y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
model = SVC(C=1.0).fit(X, y)

# %%
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "wine.onnx"
    export_onnx(model, file)
    print(f"{file.stat().st_size} bytes")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file))
    given = session.get_inputs()[0]
    kind = np.float64 if "double" in given.type else np.float32
    label = session.run(None, {given.name: X.astype(kind)})[0]
assert (np.asarray(label).ravel() == model.predict(X)).all()
print("onnxruntime agrees on every sample")
