//! The points of one side of a Gram.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::data::Points;

/// Points of their own, or some of other points. Those are copied when they are first read: where entries are sums of
/// bytes, which are selected by themselves, they never are.
#[derive(Clone)]
pub(super) enum Side {
    Own(Points),
    Selected(Arc<Selection>),
}

pub(super) struct Selection {
    of: Points,
    list: Vec<u32>,
    copied: OnceLock<Points>,
}

impl Side {
    /// Some of the points, in the order of the list.
    pub(super) fn select(&self, rows: &[u32]) -> Self {
        let (of, list) = match self {
            Self::Own(points) => (points.clone(), rows.to_vec()),
            Self::Selected(from) => (from.of.clone(), rows.iter().map(|&r| from.list[r as usize]).collect()),
        };
        Self::Selected(Arc::new(Selection { of, list, copied: OnceLock::new() }))
    }

    /// Number of points; copies nothing.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Own(points) => points.len(),
            Self::Selected(some) => some.list.len(),
        }
    }

    /// Number of features; copies nothing.
    pub(super) fn dims(&self) -> usize {
        match self {
            Self::Own(points) => points.dims(),
            Self::Selected(some) => some.of.dims(),
        }
    }
}

impl Deref for Side {
    type Target = Points;

    fn deref(&self) -> &Points {
        match self {
            Self::Own(points) => points,
            Self::Selected(some) => some.copied.get_or_init(|| some.of.gather(&some.list)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_of_selections_are_the_listed_points() {
        let points = Points::dense_f64(5, 2, (0..10).map(f64::from).collect::<Vec<f64>>()).unwrap();
        let some = Side::Own(points.clone()).select(&[4, 0, 3]).select(&[2, 1, 1]);
        assert_eq!((some.len(), some.dims()), (3, 2));
        let (want, got) = (points.gather(&[3, 0, 0]), &*some);
        assert_eq!(got.len(), 3);
        let mut row = [[0.0; 2]; 2];
        for i in 0..3 {
            want.copy_row(i, &mut row[0]);
            got.copy_row(i, &mut row[1]);
            assert_eq!(row[0], row[1], "point {i}");
        }
    }
}
