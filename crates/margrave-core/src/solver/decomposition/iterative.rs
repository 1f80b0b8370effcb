//! Minima over the free variables by conjugate gradients with a Nyström preconditioner: no factor of K_FF.
//!
//! A factorisation takes |F|³/3 multiply–adds, a step |F|²: where K_FF is not badly conditioned a few dozen steps give
//! what a round needs. K_FF is kept as a triangle from round to round; entries in [0, 1] take 16 bits while no proximal
//! term is needed, which is a third less time for a product that reads all of it.

use super::cg::{Minimum, System};
use super::nystrom::{Nystrom, Preconditioner};
use super::rows::StoredEntry;
use super::state::DualState;
use super::workspace::Workspace;
use crate::control::{Control, Interrupt, Threads};
use crate::gram::{Gram, Pick};
use crate::linalg::factor::FactorError;
use crate::linalg::triangle::Triangle;

/// Centres of the preconditioner. More save steps, but cost more than they save: 512 is even on S1, C = 100, and 1 024
/// loses.
const RANK: usize = 256;
/// Free variables from which the preconditioner is used.
const PRECONDITION_FROM: usize = 1000;
/// A copy of K over the free members is made when fewer than this share of those multiplied are free.
const COPY_BELOW: f64 = 0.75;
/// Members that are not free are dropped when they are more than one in so many of the free ones.
const IDLE_SHARE: usize = 4;
/// Marks a variable outside the set.
const NONE: u32 = u32::MAX;

/// K below the diagonal.
enum Stored {
    Half(Triangle<u16>),
    Single(Triangle<f32>),
}

impl Stored {
    fn multiply(&self, diag: &[f64], x: &[f64], threads: &Threads) -> Vec<f64> {
        match self {
            Self::Half(k) => k.multiply(diag, x, threads),
            Self::Single(k) => k.multiply(diag, x, threads),
        }
    }

    fn part(&self, at: &[usize], threads: &Threads) -> Self {
        match self {
            Self::Half(k) => Self::Half(k.part(at, threads)),
            Self::Single(k) => Self::Single(k.part(at, threads)),
        }
    }

    fn keep(&mut self, at: &[usize], threads: &Threads) {
        match self {
            Self::Half(k) => k.keep(at, threads),
            Self::Single(k) => k.keep(at, threads),
        }
    }

    /// Rows and columns of these rows of K, in order; those there already are not computed again.
    fn grow(&mut self, gram: &dyn Gram, rows: &[u32], control: &Control) -> Result<(), Interrupt> {
        // Entries of a selection are computed without looking up columns one by one.
        let selected = distinct(rows).then(|| gram.select(rows)).flatten();
        let compute = |from: usize, to: usize, out: &mut [f32]| match &selected {
            Some(part) => part.block_f32(Pick::Range(from, to), Pick::Range(0, to), out, control),
            None => gram.block_f32(Pick::List(&rows[from..to]), Pick::List(&rows[..to]), out, control),
        };
        match self {
            Self::Half(k) => k.grow(rows.len(), &control.threads, compute),
            Self::Single(k) => k.grow(rows.len(), &control.threads, compute),
        }
    }
}

/// Whether no row is listed twice.
fn distinct(rows: &[u32]) -> bool {
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|w| w[0] != w[1])
}

/// K over a set of variables, and a preconditioner for it.
pub(super) struct Iterative {
    set: Vec<u32>,
    /// Position in `set`, or NONE.
    place: Vec<u32>,
    /// Kᵢᵢ + dᵢ of the set.
    diag: Vec<f64>,
    matrix: Stored,
    /// K over the places listed, once many members are no longer free.
    part: Option<(Stored, Vec<usize>)>,
    nystrom: Option<Box<dyn Preconditioner>>,
    /// What is added to the diagonal.
    pub(super) proximal: f64,
}

impl Iterative {
    /// `half`: entries are in [0, 1] and take 16 bits.
    pub(super) fn new(n: usize, half: bool) -> Self {
        let matrix = if half { Stored::Half(Triangle::new()) } else { Stored::Single(Triangle::new()) };
        Self {
            set: Vec::new(),
            place: vec![NONE; n],
            diag: Vec::new(),
            matrix,
            part: None,
            nystrom: None,
            proximal: 0.0,
        }
    }

    /// The set, in the order of vectors over it.
    pub(super) fn members(&self) -> &[u32] {
        &self.set
    }

    /// The position of a member.
    pub(super) fn place_of(&self, i: u32) -> usize {
        self.place[i as usize] as usize
    }

    /// Whether a variable is a member.
    pub(super) fn has(&self, i: u32) -> bool {
        self.place[i as usize] != NONE
    }

    /// K·x over the members, without the dual terms' own diagonal.
    pub(super) fn kernel_product(&self, x: &[f64], state: &DualState, control: &Control) -> Vec<f64> {
        let diag: Vec<f64> = self.set.iter().map(|&i| state.kernel_diag[i as usize]).collect();
        control.spend(x.len() * x.len());
        self.matrix.multiply(&diag, x, &control.threads)
    }

    /// Bound on the error of a typical entry of K·x from the rounding of stored entries.
    pub(super) fn rounding(&self, x: impl Iterator<Item = f64>) -> f64 {
        // Rounding errors of different entries are independent: they add up as their squares do.
        let unit = if self.is_half() { 2e-5 } else { 5e-7 };
        unit * x.map(|x| x * x).sum::<f64>().sqrt()
    }

    /// Whether entries take 16 bits.
    pub(super) fn is_half(&self) -> bool {
        matches!(self.matrix, Stored::Half(_))
    }

    /// Frees the memory.
    pub(super) fn free_memory(&mut self) {
        *self = Self::new(self.place.len(), self.is_half());
    }

    /// Frees the memory, and takes 32 bits for an entry from now on.
    pub(super) fn restart_in_single(&mut self) {
        *self = Self::new(self.place.len(), false);
    }

    /// Most members of a set within so many bytes.
    pub(super) fn most_members(&self, bytes: u64) -> usize {
        // Twice the triangle: a copy of the free part may be made. The rows of the preconditioner are small beside it.
        let entry = if self.is_half() { 2.0 } else { 4.0 };
        (bytes as f64 / entry).sqrt() as usize
    }

    /// Makes the set ⊇ `free`.
    pub(super) fn prepare<T: StoredEntry>(
        &mut self,
        free: &[u32],
        state: &DualState,
        work: &Workspace<'_, '_, T>,
    ) -> Result<(), FactorError> {
        self.part = None;
        let known = free.iter().filter(|&&i| self.place[i as usize] != NONE).count();
        let idle = self.set.len() - known;
        if idle * IDLE_SHARE > free.len() {
            let mut wanted = vec![false; self.place.len()];
            free.iter().for_each(|&i| wanted[i as usize] = true);
            let at: Vec<usize> = (0..self.set.len()).filter(|&p| wanted[self.set[p] as usize]).collect();
            self.keep(&at, &work.control.threads);
        }
        let new: Vec<u32> = free.iter().copied().filter(|&i| self.place[i as usize] == NONE).collect();
        if new.is_empty() {
            return Ok(());
        }
        for &i in &new {
            self.place[i as usize] = self.set.len() as u32;
            self.set.push(i);
            self.diag.push(state.kernel_diag[i as usize] + state.terms[i as usize].d);
        }
        let row = |i: &u32| work.problem.row(*i as usize) as u32;
        let rows: Vec<u32> = self.set.iter().map(row).collect();
        if let Err(why) = self.grow(&rows, new.len(), state, work) {
            // Half-grown parts are useless.
            let half = self.is_half();
            *self = Self { proximal: self.proximal, ..Self::new(self.place.len(), half) };
            return Err(why);
        }
        Ok(())
    }

    fn grow<T: StoredEntry>(
        &mut self,
        rows: &[u32],
        new: usize,
        state: &DualState,
        work: &Workspace<'_, '_, T>,
    ) -> Result<(), FactorError> {
        self.matrix.grow(work.gram, rows, work.control)?;
        let from = match &self.nystrom {
            Some(_) => rows.len() - new,
            None if rows.len() < PRECONDITION_FROM => return Ok(()),
            None => {
                let largest = state.kernel_diag.iter().fold(0.0f64, |w, k| w.max(*k));
                let mut centres = rows.to_vec();
                centres.sort_unstable_by_key(|&r| (super::blocks::hash(r), r));
                centres.dedup();
                centres.truncate(RANK);
                // Entries take 32 bits where K_FF is stiff.
                self.nystrom = Some(match &self.matrix {
                    Stored::Half(_) => Box::new(Nystrom::<f32>::new(work.gram, centres, largest, work.control)?),
                    Stored::Single(_) => Box::new(Nystrom::<f64>::new(work.gram, centres, largest, work.control)?),
                });
                0
            }
        };
        let diag: Vec<f64> = self.set[from..].iter().map(|&i| state.kernel_diag[i as usize]).collect();
        self.nystrom.as_mut().expect("just made").grow(work.gram, &rows[from..], &diag, work.control)?;
        Ok(())
    }

    fn keep(&mut self, at: &[usize], threads: &Threads) {
        self.matrix.keep(at, threads);
        if let Some(nystrom) = &mut self.nystrom {
            nystrom.keep(at);
        }
        self.set.iter().for_each(|&i| self.place[i as usize] = NONE);
        self.set = at.iter().map(|&p| self.set[p]).collect();
        self.diag = at.iter().map(|&p| self.diag[p]).collect();
        self.set.iter().enumerate().for_each(|(p, &i)| self.place[i as usize] = p as u32);
    }

    /// The minimum over the free members of the system, with the proximal term.
    pub(super) fn minimum(
        &mut self,
        system: System<'_>,
        state: &DualState,
        control: &Control,
    ) -> Result<Minimum, FactorError> {
        let free = system.free;
        let m = free.len();
        let count = free.iter().filter(|free| **free).count();
        let covered = self.part.as_ref().map_or(m, |part| part.1.len());
        if (count as f64) < COPY_BELOW * covered as f64 {
            let at: Vec<usize> = (0..m).filter(|&p| free[p]).collect();
            self.part = Some((self.matrix.part(&at, &control.threads), at));
        }
        let preconditioned = count >= PRECONDITION_FROM && self.nystrom.is_some();
        if preconditioned {
            // Squared losses have a diagonal of their own; a mean serves as well.
            let own = |p: usize| state.terms[self.set[p] as usize].d;
            let mean = (0..m).filter(|&p| free[p]).map(own).sum::<f64>() / count.max(1) as f64;
            self.nystrom.as_mut().expect("just asked").fit(free, mean + self.proximal, control)?;
        }
        let this = &*self;
        let diag: Vec<f64> = this.diag.iter().map(|d| d + this.proximal).collect();
        let precondition = |x: &mut [f64]| match &this.nystrom {
            Some(nystrom) if preconditioned => nystrom.apply(x, free, control),
            _ => x.iter_mut().enumerate().for_each(|(p, x)| *x = if free[p] { *x / diag[p] } else { 0.0 }),
        };
        let all = |x: &[f64]| {
            control.spend(m * m);
            this.matrix.multiply(&diag, x, &control.threads)
        };
        let within = |x: &[f64]| match &this.part {
            None => all(x),
            Some((matrix, at)) => {
                control.spend(at.len() * at.len());
                let own: Vec<f64> = at.iter().map(|&p| x[p]).collect();
                let diag: Vec<f64> = at.iter().map(|&p| diag[p]).collect();
                let mut out = vec![0.0; m];
                let product = matrix.multiply(&diag, &own, &control.threads);
                at.iter().zip(product).for_each(|(&p, value)| out[p] = value);
                out
            }
        };
        Ok(system.solve(&this.set, all, within, precondition, state, control)?)
    }
}
