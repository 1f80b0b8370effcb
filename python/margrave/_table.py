"""Tables with missing values, words and dates as arrays of numbers."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

_RULES = ("refuse", "mean", "median", "indicator")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?([Zz]|[+-]\d\d:\d\d)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Words for missing values, in small letters; the program has the same.
_MARKS = frozenset(("", "?", "na", "n/a", "nan", "null"))
#: A column of texts is taken for names of rows where this share of at least so many rows has a text of its own, as in the program.
_MOSTLY_DISTINCT = 0.9
_DISTINCT_ROWS = 20
_PARTS = ("year", "month", "day", "weekday", "hour")


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turn a table with missing values, words and dates into numbers, as the program's options do.

    Parameters
    ----------
    missing : {"refuse", "mean", "median", "indicator"}, default="refuse"
        What stands for missing values: nothing (an error), the mean or median of the column, or the mean and one more
        feature that is 1 where the value is missing. Words take the most frequent one, or with "indicator" none. Missing
        are NaN, None, empty texts and, unless they are refused, "?", "NA", "N/A", "NaN" and "null" in any letters.
    unknown : {"refuse", "ignore"}, default="refuse"
        Words that ``fit`` did not see: an error, or none of the known ones.
    drop : list of str or int, default=()
        Columns to leave out, by name or by number from 0.
    ordinal : dict, default=None
        Columns whose words have an order: name or number of the column, and its words from least to greatest.
    dates : {"number", "parts", "text"}, default="number"
        Columns of dates (datetimes, or ISO texts): days since 1970-01-01, year, month, day, weekday (1 is Monday) and
        hour, or words.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Names of the columns, if the table has names.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import TablePreprocessor
    >>> X = np.array([[1.0, "red"], [np.nan, "blue"], [3.0, "red"]], dtype=object)
    >>> table = TablePreprocessor(missing="mean").fit(X)
    >>> table.transform(X)
    array([[1., 0., 1.],
           [2., 1., 0.],
           [3., 0., 1.]])
    >>> list(table.get_feature_names_out())
    ['x0', 'x1=blue', 'x1=red']
    """

    def __init__(
        self,
        *,
        missing: str = "refuse",
        unknown: str = "refuse",
        drop: Any = (),
        ordinal: Any = None,
        dates: str = "number",
    ) -> None:
        self.missing = missing
        self.unknown = unknown
        self.drop = drop
        self.ordinal = ordinal
        self.dates = dates

    def fit(self, X: Any, y: Any = None) -> TablePreprocessor:
        """Learn categories and the values for missing cells.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, n_columns)
            The table.
        y : object, optional
            Not used.

        Returns
        -------
        TablePreprocessor
            This object.
        """
        del y
        _one_of("missing", self.missing, _RULES)
        _one_of("unknown", self.unknown, ("refuse", "ignore"))
        _one_of("dates", self.dates, ("number", "parts", "text"))
        names, columns = _columns(X)
        self.n_features_in_ = len(columns)
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        shown = names if names is not None else [f"x{at}" for at in range(len(columns))]
        place = {name: at for at, name in enumerate(shown)}

        def find(option: str, column: Any) -> int:
            if column in place:
                return place[column]
            if isinstance(column, (int, np.integer)) and -len(columns) <= column < len(columns):
                return int(column) % len(columns)
            raise ValueError(f"{option}: there is no column {column!r}; the columns are {', '.join(map(str, shown))}")

        drop = [self.drop] if isinstance(self.drop, (str, int)) else list(self.drop)
        dropped = {find("drop", column) for column in drop}
        ordinal = {find("ordinal", column): [str(w) for w in words] for column, words in (self.ordinal or {}).items()}
        self._learnt = [
            _Learnt(shown[at], at, column, ordinal.get(at), self)
            for at, column in enumerate(columns)
            if at not in dropped
        ]
        if not self._learnt:
            raise ValueError("no column is left: drop fewer")
        for learnt in self._learnt:
            learnt.warn_of_names(columns[learnt.at])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Turn a table into numbers.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, n_columns)
            The table, with the columns of the one that was fitted; a DataFrame may have them in any order.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The features.
        """
        check_is_fitted(self, "_learnt")
        names, columns = _columns(X)
        if names is not None and hasattr(self, "feature_names_in_"):
            place = {name: at for at, name in enumerate(names)}
            lacking = [learnt.name for learnt in self._learnt if learnt.name not in place]
            if lacking:
                raise ValueError(f"columns that were fitted are missing: {', '.join(map(str, lacking))}")
            chosen = [columns[place[learnt.name]] for learnt in self._learnt]
        elif len(columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(columns)} features, but TablePreprocessor is expecting {self.n_features_in_} features as input"
            )
        else:
            chosen = [columns[learnt.at] for learnt in self._learnt]
        ignore = self.unknown == "ignore"
        return np.hstack([learnt.encode(column, ignore) for learnt, column in zip(self._learnt, chosen, strict=True)])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features.

        Parameters
        ----------
        input_features : object, optional
            Not used; the names are those of the table.

        Returns
        -------
        ndarray of str
            One name per feature: that of its column, with the word, part or "is missing" it stands for.
        """
        del input_features
        check_is_fitted(self, "_learnt")
        return np.asarray([name for learnt in self._learnt for name in learnt.names()], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "refuse"
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


class _Learnt:
    """How one column becomes features."""

    def __init__(
        self, name: Any, at: int, column: np.ndarray, order: list[str] | None, table: TablePreprocessor
    ) -> None:
        self.name, self.at = name, at
        # As in the program: where missing values are filled, words such as "?" and "NA" are missing values.
        self.marks = table.missing != "refuse"
        absent = _absent(column, self.marks)
        self.words: list[str] = []
        self.kind = _kind(column, absent, order, table.dates)
        if self.kind == "ordinal":
            self.words = order or []
        elif self.kind == "words":
            self.words = sorted({str(v) for v in column[~absent]})
        self.time = self.kind == "parts" and any(d.hour or d.minute or d.second for d in map(_date, column[~absent]))
        self.fill: np.ndarray | None = None
        self.indicator = table.missing == "indicator" and bool(absent.any())
        if table.missing == "refuse":
            marked = _absent(column, True)
            # A "?" among numbers is no word.
            numbers = self.kind == "words" and all(_is_number(v) for v in column[~marked])
            wrong = marked if numbers else absent
            _refuse(self.label(), wrong, "fill it in, or choose missing='mean', 'median' or 'indicator'")
            return
        if absent.all():
            raise ValueError(f"every value of {self.label()} is missing: drop the column")
        values = self._values(column[~absent], False)
        if self.kind == "words":
            most = Counter(str(v) for v in column[~absent])
            common = min(most, key=lambda word: (-most[word], word))
            self.fill = np.array([float(word == common and not self.indicator) for word in self.words])
        else:
            self.fill = np.median(values, axis=0) if table.missing == "median" else np.mean(values, axis=0)

    def label(self) -> str:
        return f"column {self.at + 1} ({self.name!r})"

    def warn_of_names(self, column: np.ndarray) -> None:
        """Warn where nearly every row has a word of its own."""
        n = len(column)
        if self.kind != "words" or n < _DISTINCT_ROWS:
            return
        counts = Counter(str(v) for v in column[~_absent(column, self.marks)])
        if sum(count == 1 for count in counts.values()) >= _MOSTLY_DISTINCT * n:
            warnings.warn(
                f"{self.label()} has {len(counts)} different texts in {n} rows, like a name or number of the row, and"
                f" became as many features: consider drop=[{self.name!r}]",
                UserWarning,
                stacklevel=3,
            )

    def names(self) -> list[str]:
        own = {
            "words": [f"{self.name}={word}" for word in self.words],
            "parts": [f"{self.name}.{part}" for part in _PARTS[: 5 if self.time else 4]],
        }.get(self.kind, [str(self.name)])
        return own + [f"{self.name} is missing"] * self.indicator

    def encode(self, column: np.ndarray, ignore: bool) -> np.ndarray:
        absent = _absent(column, self.marks)
        if self.fill is None:
            _refuse(self.label(), absent, "fill it in, or fit with missing='mean', 'median' or 'indicator'")
        width = len(self.names()) - self.indicator
        out = np.zeros((len(column), width))
        out[~absent] = self._values(column[~absent], ignore)
        # An unknown word of an order, or a text that is no date, counts as missing where that is known.
        lost = np.isnan(out).any(axis=1) if width else np.zeros(len(column), dtype=bool)
        if self.fill is not None:
            out[absent | lost] = self.fill
        if self.indicator:
            out = np.column_stack([out, (absent | lost).astype(float)])
        return out

    def _values(self, present: np.ndarray, ignore: bool) -> np.ndarray:
        if self.kind == "number":
            try:
                values = present.astype(float)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{self.label()} held numbers when it was fitted: {error}") from None
            if not np.isfinite(values).all():
                raise ValueError(f"{self.label()} has an infinite value: remove or replace it")
            return values[:, None]
        if self.kind in ("date", "parts"):
            return np.array([self._date_values(v, ignore) for v in present]).reshape(len(present), -1)
        place = {word: at for at, word in enumerate(self.words)}
        codes = np.array([place.get(str(v), -1) for v in present], dtype=int)
        unknown = codes < 0
        if unknown.any() and not (ignore and (self.kind == "words" or self.fill is not None)):
            word = str(present[np.argmax(unknown)])
            raise ValueError(
                f"{self.label()} has the word {word!r}, which is not among {', '.join(map(repr, self.words[:10]))}:"
                + (" add it to ordinal, or" if self.kind == "ordinal" else "")
                + " use unknown='ignore', or fit with it"
            )
        if self.kind == "ordinal":
            return np.where(unknown, np.nan, codes.astype(float))[:, None]
        out = np.zeros((len(present), len(self.words)))
        out[np.flatnonzero(~unknown), codes[~unknown]] = 1.0
        return out

    def _date_values(self, value: Any, ignore: bool) -> list[float]:
        parts = self.kind == "parts"
        try:
            date = _date(value)
        except ValueError:
            if ignore and self.fill is not None:
                return [np.nan] * len(self.fill)
            raise ValueError(f"{self.label()} held dates when it was fitted, and {value!r} is not one") from None
        hour = date.hour + date.minute / 60 + (date.second + date.microsecond / 1e6) / 3600
        if parts:
            return [float(v) for v in (date.year, date.month, date.day, date.isoweekday(), hour)][
                : 5 if self.time else 4
            ]
        aware = date if date.tzinfo else date.replace(tzinfo=timezone.utc)
        return [(aware - _EPOCH) / timedelta(days=1)]


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value == "row" and name == "missing":
        raise ValueError(
            "missing='row' cannot leave out rows of y in a Pipeline: drop them before, as with DataFrame.dropna"
        )
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")


def _columns(X: Any) -> tuple[list[Any] | None, list[np.ndarray]]:
    """Names, if there are any, and columns of a table."""
    if hasattr(X, "columns") and hasattr(X, "get_column"):
        return list(X.columns), [X.get_column(name).to_numpy() for name in X.columns]
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        names = [str(name) for name in X.columns]
        if len(set(names)) < len(names):
            raise ValueError("two columns have the same name: rename one")
        return names, [X.iloc[:, at].to_numpy() for at in range(X.shape[1])]
    if hasattr(X, "toarray"):
        raise TypeError("sparse data has no columns to fill or encode: dense data is required")
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: one row per sample.")
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    if array.shape[0] == 0:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    if array.shape[1] == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    return None, [array[:, at] for at in range(array.shape[1])]


def _is_mark(value: Any) -> bool:
    """Whether a cell is a word for a missing value."""
    return isinstance(value, str) and value.strip().lower() in _MARKS


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _absent(column: np.ndarray, marks: bool) -> np.ndarray:
    """Where a column has no value; with `marks`, words for missing values are none."""
    if column.dtype.kind in "biu":
        return np.zeros(len(column), dtype=bool)
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "mM":
        return np.isnat(column)
    kinds = ("NAType", "NaTType")
    return np.array(
        [
            v is None
            or type(v).__name__ in kinds
            or (_is_mark(v) if marks else isinstance(v, str) and not v.strip())
            or v != v
            for v in column
        ],
        dtype=bool,
    )


def _kind(column: np.ndarray, absent: np.ndarray, order: list[str] | None, dates: str) -> str:
    if order is not None:
        return "ordinal"
    as_date = {"number": "date", "parts": "parts"}.get(dates, "words")
    if column.dtype.kind == "M":
        return as_date
    if column.dtype.kind in "biuf":
        return "number"
    present = column[~absent]
    if all(isinstance(v, (int, float, np.number, np.bool_)) for v in present):
        return "number"
    # Numbers among words such as "?", which make a column of texts when a file is read. Texts of digits alone are words.
    if any(_is_mark(v) for v in column[absent]) and all(_is_number(v) for v in present):
        return "number"
    if dates == "text":
        return "words"
    try:
        for value in present:
            _date(value)
    except ValueError:
        return "words"
    return as_date


def _date(value: Any) -> datetime:
    """The date of a cell; ValueError if it is none."""
    if isinstance(value, np.datetime64):
        return datetime.fromisoformat(str(value.astype("datetime64[us]")))
    if isinstance(value, datetime):
        return value
    text = str(value)
    if not _ISO.fullmatch(text):
        raise ValueError(text)
    text = text[:10] + text[10:].upper().replace("Z", "+00:00")
    # Before Python 3.11 fractions have three or six digits.
    text = re.sub(r"\.(\d+)", lambda m: "." + m.group(1).ljust(6, "0"), text)
    return datetime.fromisoformat(text)


def _refuse(label: str, absent: np.ndarray, remedy: str) -> None:
    if absent.any():
        raise ValueError(f"row {int(np.argmax(absent)) + 1} of {label} has no value (NaN): {remedy}")


#: The kinds of columns in files: those without words, and how those with words are called.
_PLAIN = {"number": "number", "date": "date"}
_WORDY = {"words": "onehot", "ordinal": "ordinal"}


def to_schema(table: TablePreprocessor) -> str:
    """The columns of a fitted preprocessor as model files describe them."""
    check_is_fitted(table, "_learnt")
    columns = []
    for learnt in table._learnt:
        encoding: Any = _PLAIN.get(learnt.kind) or {_WORDY.get(learnt.kind, ""): learnt.words}
        if learnt.kind == "parts":
            encoding = {"dateparts": {"time": learnt.time}}
        column: dict[str, Any] = {
            "name": str(learnt.name) if hasattr(table, "feature_names_in_") else None,
            "encoding": encoding,
        }
        if learnt.fill is not None:
            column["fill"] = {"values": learnt.fill.tolist(), "indicator": learnt.indicator}
        columns.append(column)
    return json.dumps(
        {
            "features": len(table.get_feature_names_out()),
            "sparse": False,
            "columns": columns,
            "target": None,
            "weights": None,
            "missing": table.missing,
            "ignore_unknown": table.unknown == "ignore",
        }
    )


def from_schema(text: str) -> TablePreprocessor:
    """A fitted preprocessor that does to a table what a model file says."""
    schema = json.loads(text)
    missing, learnt = schema.get("missing", "refuse"), []
    kinds = {name: kind for kind, name in (_PLAIN | _WORDY).items()}
    for at, column in enumerate(schema["columns"]):
        one = _Learnt.__new__(_Learnt)
        encoding = column["encoding"]
        content: Any
        called, content = next(iter(encoding.items())) if isinstance(encoding, dict) else (encoding, None)
        one.kind, one.at = kinds.get(called, "parts"), at
        one.name = column["name"] if column["name"] is not None else f"x{at}"
        one.words = content if called in _WORDY.values() else []
        one.time = one.kind == "parts" and content["time"]
        one.marks = missing != "refuse"
        fill = column.get("fill")
        one.fill = None if fill is None else np.array(fill["values"], dtype=float)
        one.indicator = fill is not None and fill.get("indicator", False)
        learnt.append(one)
    table = TablePreprocessor(
        # Rows cannot be left out in a pipeline: they are refused.
        missing="refuse" if missing == "row" else missing,
        unknown="ignore" if schema.get("ignore_unknown") else "refuse",
        ordinal={one.name: one.words for one in learnt if one.kind == "ordinal"} or None,
        dates="parts" if any(one.kind == "parts" for one in learnt) else "number",
    )
    table._learnt = learnt
    table.n_features_in_ = len(learnt)
    if all(column["name"] is not None for column in schema["columns"]):
        table.feature_names_in_ = np.array([one.name for one in learnt], dtype=object)
    return table
