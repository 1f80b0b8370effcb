//! Which packed panels serve a request for columns.

use crate::gram::Pick;

/// A part of a request, at most a few panels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Item {
    /// Whole panels whose columns are requested in order, at position `at` of the output.
    Run { first: usize, count: usize, at: usize },
    /// Some lanes of a panel: elements `from..until` of [`ColumnPlan::columns`] and [`ColumnPlan::at`].
    Part { panel: usize, from: usize, until: usize },
    /// Columns to pack on demand: elements `from..until` of [`ColumnPlan::columns`] and [`ColumnPlan::at`].
    Gather { from: usize, until: usize },
}

impl Item {
    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        match self {
            Item::Run { count, .. } => *count,
            _ => 1,
        }
    }
}

/// The parts of a request.
#[derive(Debug, Default)]
pub(crate) struct ColumnPlan {
    pub(crate) items: Vec<Item>,
    /// Column indices, in the order of the items.
    pub(crate) columns: Vec<u32>,
    /// Positions in the output.
    pub(crate) at: Vec<u32>,
}

impl ColumnPlan {
    /// The columns `cols` out of `m`, panels being `nr` wide and runs at most `longest` panels. If fewer than `few`
    /// columns of one panel are requested, they are packed together with others; `None`: nothing is packed, so any
    /// columns form a panel.
    pub(crate) fn new(cols: Pick<'_>, m: usize, nr: usize, longest: usize, few: Option<usize>) -> Self {
        let mut plan = ColumnPlan::default();
        match cols {
            Pick::All => plan.range(0, m, nr, longest, few.is_some()),
            Pick::Range(from, to) => plan.range(from, to, nr, longest, few.is_some()),
            Pick::List(list) => plan.list(list, nr, longest, few.unwrap_or(usize::MAX)),
        }
        plan
    }

    fn range(&mut self, from: usize, to: usize, nr: usize, longest: usize, packed: bool) {
        let mut next = from;
        while next < to {
            let whole = (to - next) / nr;
            if next.is_multiple_of(nr) && whole > 0 {
                let count = whole.min(longest);
                self.items.push(Item::Run { first: next / nr, count, at: next - from });
                next += count * nr;
            } else {
                let end = to.min((next / nr + 1) * nr);
                let start = self.at.len();
                self.columns.extend((next..end).map(|c| c as u32));
                self.at.extend((next..end).map(|c| (c - from) as u32));
                let until = self.at.len();
                self.items.push(match packed {
                    true => Item::Part { panel: next / nr, from: start, until },
                    false => Item::Gather { from: start, until },
                });
                next = end;
            }
        }
    }

    fn list(&mut self, list: &[u32], nr: usize, longest: usize, few: usize) {
        let mut loose: Vec<u32> = Vec::new();
        let mut from = 0;
        while from < list.len() {
            let panel = list[from] as usize / nr;
            let until = list[from..].iter().take(nr).position(|c| *c as usize / nr != panel);
            let until = until.map_or(list.len().min(from + nr), |length| from + length);
            let run = &list[from..until];
            if run.len() == nr && run.windows(2).all(|w| w[0] < w[1]) {
                match self.items.last_mut() {
                    Some(Item::Run { first, count, at })
                        if *first + *count == panel && *at + *count * nr == from && *count < longest =>
                    {
                        *count += 1;
                    }
                    _ => self.items.push(Item::Run { first: panel, count: 1, at: from }),
                }
            } else if run.len() >= few {
                let start = self.at.len();
                self.columns.extend_from_slice(run);
                self.at.extend((from..until).map(|i| i as u32));
                self.items.push(Item::Part { panel, from: start, until: self.at.len() });
            } else {
                loose.extend((from..until).map(|i| i as u32));
            }
            from = until;
        }
        for positions in loose.chunks(nr) {
            let start = self.at.len();
            self.columns.extend(positions.iter().map(|i| list[*i as usize]));
            self.at.extend_from_slice(positions);
            self.items.push(Item::Gather { from: start, until: self.at.len() });
        }
    }

    /// Ranges of items of about `panels` panels each.
    pub(crate) fn chunks(&self, panels: usize) -> Vec<std::ops::Range<usize>> {
        let mut chunks = Vec::new();
        let (mut start, mut total) = (0, 0);
        for (i, item) in self.items.iter().enumerate() {
            if total > 0 && total + item.panels() > panels {
                chunks.push(start..i);
                (start, total) = (i, 0);
            }
            total += item.panels();
        }
        if start < self.items.len() {
            chunks.push(start..self.items.len());
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output position → column, by walking the items.
    fn answer(plan: &ColumnPlan, nr: usize, width: usize) -> Vec<usize> {
        let mut out = vec![usize::MAX; width];
        for item in &plan.items {
            match *item {
                Item::Run { first, count, at } => (0..count * nr).for_each(|i| out[at + i] = first * nr + i),
                Item::Part { panel, from, until } => {
                    for i in from..until {
                        assert_eq!(plan.columns[i] as usize / nr, panel);
                        out[plan.at[i] as usize] = plan.columns[i] as usize;
                    }
                }
                Item::Gather { from, until } => {
                    assert!(until - from <= nr);
                    (from..until).for_each(|i| out[plan.at[i] as usize] = plan.columns[i] as usize);
                }
            }
        }
        out
    }

    #[test]
    fn every_column_is_served_once() {
        let (m, nr) = (1000, 16);
        for few in [Some(2), Some(8), Some(17), None] {
            let ascending: Vec<u32> = (0..m as u32).filter(|c| c % 7 != 3 && !(300..400).contains(c)).collect();
            let mut mixed: Vec<u32> = (0..500).map(|i| (i * i * 31 + 7) % m as u32).collect();
            mixed.extend(160..320);
            mixed.extend([5, 5, 5, 999, 0]);
            for list in [&ascending, &mixed] {
                let plan = ColumnPlan::new(Pick::List(list), m, nr, 4, few);
                let wanted: Vec<usize> = list.iter().map(|c| *c as usize).collect();
                assert_eq!(answer(&plan, nr, list.len()), wanted);
                let items: usize = plan.chunks(5).into_iter().map(|chunk| chunk.len()).sum();
                assert_eq!(items, plan.items.len());
            }
            for (from, to) in [(0, m), (3, 999), (17, 18), (16, 48), (40, 40)] {
                let plan = ColumnPlan::new(Pick::Range(from, to), m, nr, 4, few);
                assert_eq!(answer(&plan, nr, to - from), (from..to).collect::<Vec<_>>());
            }
        }
    }
}
