//! What lies on the card: the variables, the set F, and what the host reads back.

use margrave_core::gram::DeviceProblem;
use margrave_core::loss::DualTerm;

use crate::driver::{Buffer, Plain, Turn};
use crate::error::CudaError;
use crate::gram::CudaGram;

const WHAT: &str = "the solver";
/// Variables from which several threads prepare them.
const SEVERAL: usize = 50_000;

/// Memory that grows when more is asked for; its contents are then lost.
#[derive(Debug)]
pub(super) struct Room<T: Plain>(Option<Buffer<T>>);

impl<T: Plain> Default for Room<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Plain> Room<T> {
    /// Room for at least `len` numbers.
    pub(super) fn get(&mut self, turn: &Turn<'_>, len: usize) -> Result<&Buffer<T>, CudaError> {
        if self.0.as_ref().is_none_or(|held| held.len() < len) {
            // The old memory goes first: both may not fit.
            self.0 = None;
            let more = if len * size_of::<T>() > 1 << 26 { len / 8 } else { len / 2 };
            self.0 = Some(match turn.allocate(len + more, WHAT) {
                Err(CudaError::Memory { .. }) => turn.allocate(len, WHAT)?,
                other => other?,
            });
        }
        Ok(self.0.as_ref().expect("just allocated"))
    }

    /// The address, for a room that is already large enough.
    pub(super) fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Buffer::address)
    }

    /// The buffer, for a room that is already large enough.
    pub(super) fn held(&self) -> &Buffer<T> {
        self.0.as_ref().expect("allocated before")
    }
}

/// `Variables` of solver.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Variables {
    beta: u64,
    g: u64,
    lo: u64,
    hi: u64,
    eps: u64,
    d: u64,
}

/// `State` of solver.cu.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct State {
    pub(super) up: f64,
    pub(super) low: f64,
    pub(super) mu: f64,
    pub(super) violation: f64,
    pub(super) threshold: f64,
    pub(super) step: f64,
    pub(super) slope: f64,
    pub(super) curvature: f64,
    pub(super) gap: f64,
    pub(super) dual: f64,
    pub(super) free: i32,
    pub(super) released: i32,
    pub(super) out: i32,
    pub(super) left: i32,
    pub(super) cg: Cg,
}

// SAFETY: numbers only, laid out as in solver.cu.
unsafe impl Plain for State {}

/// `Cg` of solver.cu.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Cg {
    pub(super) rr: f64,
    rz: f64,
    aim: f64,
    floor: f64,
    pub(super) limit: f64,
    pub(super) largest: f64,
    base: f64,
    pub(super) done: i32,
    pub(super) steps: i32,
    pub(super) most: i32,
    pub(super) free: i32,
}

// SAFETY: numbers only, laid out as in solver.cu.
unsafe impl Plain for Cg {}

/// The dual problem on the card, its variables in random order.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) n: usize,
    pub(super) paired: u32,
    /// Σβ.
    pub(super) sum: f64,
    /// The row of each variable.
    pub(super) order: Buffer<u32>,
    rows: Vec<u32>,
    pub(super) beta: Buffer<f64>,
    g: Buffer<f64>,
    lo: Buffer<f64>,
    hi: Buffer<f64>,
    eps: Buffer<f64>,
    d: Buffer<f64>,
    pub(super) p: Buffer<f64>,
}

/// Numbers 0..n in random order, the same every time: splitmix64, Fisher and Yates.
fn shuffled(n: usize) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut list: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        list.swap(i, (next() % (i as u64 + 1)) as usize);
    }
    list
}

impl Problem {
    pub(super) fn new(gram: &CudaGram, problem: &DeviceProblem<'_>) -> Result<Self, CudaError> {
        let turn = gram.card.enter()?;
        let n = problem.terms.len();
        let rows = shuffled(n);
        let column = |of: fn(&DualTerm) -> f64| -> Vec<f64> {
            rows.iter().map(|&row| of(&problem.terms[row as usize])).collect()
        };
        let gather: [&(dyn Fn() -> Vec<f64> + Sync); 6] = [
            &|| rows.iter().map(|&row| problem.start[row as usize]).collect(),
            &|| column(|t| t.lo),
            &|| column(|t| t.hi),
            &|| column(|t| t.eps),
            &|| column(|t| t.d),
            &|| column(|t| t.p),
        ];
        let columns: Vec<Vec<f64>> = match n {
            // Threads are worth their start.
            SEVERAL.. => std::thread::scope(|scope| {
                let threads = gather.map(|gather| scope.spawn(gather));
                threads.into_iter().map(|thread| thread.join().expect("no panic in a copy")).collect()
            }),
            _ => gather.iter().map(|gather| gather()).collect(),
        };
        let upload = |at: usize| turn.upload(&columns[at], WHAT);
        Ok(Self {
            n,
            paired: u32::from(problem.keeps_sum),
            sum: problem.start.iter().sum(),
            order: turn.upload(&rows, WHAT)?,
            beta: upload(0)?,
            g: turn.allocate(n, WHAT)?,
            lo: upload(1)?,
            hi: upload(2)?,
            eps: upload(3)?,
            d: upload(4)?,
            p: upload(5)?,
            rows,
        })
    }

    pub(super) fn variables(&self) -> Variables {
        Variables {
            beta: self.beta.address(),
            g: self.g.address(),
            lo: self.lo.address(),
            hi: self.hi.address(),
            eps: self.eps.address(),
            d: self.d.address(),
        }
    }

    /// Values in the order of the card, from values by row.
    pub(super) fn by_variable(&self, values: &[f64]) -> Vec<f64> {
        self.rows.iter().map(|&row| values[row as usize]).collect()
    }

    /// Values by variable, from values in the order of the card.
    pub(super) fn by_row(&self, values: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.n];
        self.rows.iter().zip(values).for_each(|(&row, v)| out[row as usize] = *v);
        out
    }

    /// β by variable.
    pub(super) fn beta(&self, turn: &Turn<'_>) -> Result<Vec<f64>, CudaError> {
        let mut beta = vec![0.0; self.n];
        turn.read(&self.beta, 0, &mut beta)?;
        Ok(self.by_row(&beta))
    }
}

/// The variables of F.
#[derive(Debug, Default)]
pub(super) struct SetRoom {
    pub(super) slope: Room<f64>,
    low: Room<f64>,
    high: Room<f64>,
    d: Room<f64>,
    x: Room<f64>,
    q: Room<f32>,
    pub(super) mask: Room<u8>,
    /// The variable, and its row.
    pub(super) list: Room<u32>,
    pub(super) rows: Room<u32>,
}

/// `Set` of solver.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Set {
    slope: u64,
    low: u64,
    high: u64,
    pub(super) d: u64,
    x: u64,
    pub(super) q: u64,
    mask: u64,
}

impl SetRoom {
    /// Room for m variables; `q` is zero and padded to whole tiles.
    pub(super) fn get(&mut self, turn: &Turn<'_>, m: usize) -> Result<Set, CudaError> {
        let padded = m.next_multiple_of(super::cg::SIDE as usize);
        self.list.get(turn, m)?;
        self.rows.get(turn, m)?;
        let set = Set {
            slope: self.slope.get(turn, m)?.address(),
            low: self.low.get(turn, m)?.address(),
            high: self.high.get(turn, m)?.address(),
            d: self.d.get(turn, m)?.address(),
            x: self.x.get(turn, m)?.address(),
            q: self.q.get(turn, padded)?.address(),
            mask: self.mask.get(turn, m)?.address(),
        };
        turn.fill(self.q.held(), padded, 0)?;
        Ok(set)
    }

    /// The variables as they are.
    pub(super) fn again(&self) -> Set {
        Set {
            slope: self.slope.address(),
            low: self.low.address(),
            high: self.high.address(),
            d: self.d.address(),
            x: self.x.address(),
            q: self.q.address(),
            mask: self.mask.address(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_is_a_permutation_and_always_the_same() {
        let list = shuffled(1000);
        assert_eq!(list, shuffled(1000));
        assert!((0..1000).any(|i| list[i] != i as u32));
        let mut sorted = list;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn structures_are_laid_out_as_in_the_programs() {
        assert_eq!((size_of::<State>(), size_of::<Cg>(), size_of::<Set>(), size_of::<Variables>()), (168, 72, 56, 48));
    }
}
