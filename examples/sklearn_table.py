"""A population as a scikit-learn estimator: in a pipeline, and compared by cross-validation."""

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from esgd.integrations.sklearn import EsgdClassifier

x, y = load_wine(return_X_y=True, as_frame=True)
sides = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "population": EsgdClassifier(work=5e4, random_state=0),
}
for name, estimator in sides.items():
    losses = -cross_val_score(estimator, x, y, cv=3, scoring="neg_log_loss")
    print(f"{name:20} log loss {losses.mean():.3f} ± {losses.std():.3f}")
