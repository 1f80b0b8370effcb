//! One round's minimum over the set F: conjugate gradients, pinning, preconditioning.

use super::cg::{Aim, ONE};
use super::precondition::Preconditioner;
use super::round::{Current, Rounds, THREADS, grid};
use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, arguments};
use crate::error::CudaError;
use crate::gram::{Stop, TILE};
use crate::packed::PackedPoints;
use crate::phases;
use crate::points::Side;
use crate::ptx::Module;
use crate::wide;

/// Sets of this size are preconditioned.
const PRECONDITIONED: u32 = 16_000;
/// Centres of the preconditioner, and the number of variables from which there are twice as many.
const CENTRES: u32 = 1024;
const MANY: usize = 200_000;
/// Sets that have shrunk to less than this share are laid out anew.
const SHRUNK: f64 = 0.75;
/// Smaller sets are not laid out anew.
const SMALL: u32 = 2000;

impl Rounds<'_> {
    /// Minimises over F, pinning what leaves. `false`: conjugate gradients make no progress.
    pub(super) fn minimise(
        &mut self,
        mut f: Current,
        level: usize,
        goal: f64,
        violation: f64,
        careful: bool,
    ) -> Result<bool, Stop> {
        let (part, few) = if careful { (4u32, 4096u32) } else { (2, 8) };
        let paired = self.problem.paired;
        self.coarse = false;
        self.fill_matrix(f, None)?;
        let preconditioned = (self.stiff || f.m >= PRECONDITIONED) && self.prepare(level, f)?;
        let (mut tight, mut restart, mut have, mut place, mut built) = (false, true, false, 0, false);
        (self.pins, self.left_at_first) = (0, 0.0);
        for pass in 0..if careful { 200 } else { 60 } {
            let floor = 0.2 * goal;
            let more = if self.stiff { 2 } else { 1 };
            let aim = match tight {
                true => Aim { aim: 0.1 * violation, floor, share: 0.1, most: 150 * more },
                false => Aim { aim: f64::MAX, floor, share: 0.3, most: 100 * more },
            };
            if restart {
                if have {
                    self.matrix.multiply(&self.turn, &self.programs, f.set, false)?;
                }
                self.matrix.start(&self.turn, &self.programs, f.set, have, paired, aim)?;
                if preconditioned {
                    let added = if self.stiff { self.proximal } else { 0.0 };
                    if !built && !self.build_preconditioner(f, added)? {
                        return Ok(false);
                    }
                    built = true;
                    self.matrix.first_direction(&self.turn, f.set, f.list, paired)?;
                }
            } else {
                self.matrix.tighten(&self.turn, &self.programs, aim)?;
            }
            let begun = phases::begin();
            let cg = loop {
                self.control.check()?;
                match preconditioned {
                    true => self.matrix.steps(&self.turn, &self.programs, f.set, f.list, paired)?,
                    false => self.matrix.run(&self.turn, &self.programs, f.set, paired)?,
                }
                self.pin(f, part, few, true)?;
                if self.last.cg.done != 0 {
                    break self.last.cg;
                }
            };
            phases::end(begun, "conjugate gradients", f64::from(cg.steps), Some(&self.turn));
            // In a stiff set an inexact minimum is still a direction of descent.
            let hopeless = cg.done == 2 || (!tight && cg.steps >= cg.most && cg.rr > 4.0 * cg.limit);
            if hopeless && !self.stiff {
                return Ok(false);
            }
            let (out, left) = (self.last.out, self.last.left);
            if pass == 0 {
                self.left_at_first = f64::from(out) / f64::from(f.m);
            }
            if out == 0 {
                if tight || cg.largest <= floor || hopeless {
                    break;
                }
                tight = true;
                restart = preconditioned;
                have = have || preconditioned;
                if preconditioned {
                    self.reload(f)?;
                }
                continue;
            }
            self.pins += 1;
            if left == 0 {
                break;
            }
            (restart, have) = (true, true);
            tight = tight || out < left / 64;
            if preconditioned {
                self.take_out_pinned(f)?;
                built = false;
            }
            if f64::from(left) < SHRUNK * f64::from(f.m) && f.m > SMALL {
                f = self.shrink(f, place)?;
                place = 1 - place;
            }
        }
        self.keep_moves(f, true)?;
        Ok(true)
    }

    /// x becomes the vector of the next product.
    pub(super) fn reload(&self, f: Current) -> Result<(), CudaError> {
        let (m, zero) = (f.m, 0u32);
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(self.programs.load_q, grid(m as usize), THREADS, 0, arguments![m, f.set, zero])?;
            self.turn.launch(self.programs.cg_again, (1, 1), 1, 0, arguments![self.matrix.cg.address()])
        }
    }

    /// Makes the preconditioner's sums over F; `false` if there is no room for it, or too few variables.
    pub(super) fn prepare(&mut self, level: usize, f: Current) -> Result<bool, Stop> {
        let r = if self.problem.n > MANY { 2 * CENTRES } else { CENTRES };
        if self.no_preconditioner || level < 2 * r as usize {
            return Ok(false);
        }
        if self.matrix.preconditioner.is_none() {
            match self.new_preconditioner(r) {
                Ok(made) => self.matrix.preconditioner = Some(made),
                Err(CudaError::Memory { .. }) => {
                    self.no_preconditioner = true;
                    return Ok(false);
                }
                Err(other) => return Err(other.into()),
            }
        }
        let begun = phases::begin();
        let Some(mut made) = self.matrix.preconditioner.take() else { return Ok(false) };
        let (out, known, _) = made.rows();
        if known < level {
            self.block(false, known, level - known, r, out)?;
            self.no_preconditioner = !made.set_known(&self.turn, level)?;
        }
        if !self.no_preconditioner {
            made.add(&self.turn, f.list, None, f.m as usize, 1.0)?;
        }
        self.matrix.preconditioner = Some(made);
        phases::end(begun, "sums of the preconditioner", f64::from(f.m), Some(&self.turn));
        Ok(!self.no_preconditioner)
    }

    fn new_preconditioner(&self, r: u32) -> Result<Preconditioner, CudaError> {
        let w: Buffer<f64> = self.turn.allocate((r * r) as usize, "the preconditioner")?;
        self.block(true, 0, r as usize, r, w.address())?;
        Preconditioner::new(&self.turn, self.problem.n, r, w)
    }

    /// K of `count` variables from `first` on against the first r, row-major at the address `out`.
    fn block(&self, double: bool, first: usize, count: usize, r: u32, out: u64) -> Result<(), CudaError> {
        let order = &self.problem.order;
        if !double && let Some(packed) = &self.packed {
            let sides = [packed.side(None, first, count), packed.side(None, 0, r as usize)];
            return PackedPoints::block(&self.turn, sides, self.kernel, out);
        }
        if double && let Some([wide, _]) = self.gram.sides_wide(&self.turn)? {
            let (rows, centres) = (wide.side(Some(order), 0, r.max(count as u32)), wide.side(Some(order), 0, r));
            return wide::block(&self.turn, rows.part(first, count), centres, self.kernel, out);
        }
        let side = |at: usize, count: usize| -> Result<Side, CudaError> {
            Ok(match double {
                true => self.gram.sides_f64(&self.turn)?[0].side(Some(order), 0, count as u32).from(at),
                false => self.points.side(Some(order), 0, count as u32).from(at),
            })
        };
        let (a, b, narrow) = (side(first, count)?, side(0, r as usize)?, u32::from(!double));
        let blocks = (count as u32).div_ceil(TILE) * r.div_ceil(TILE);
        let function = self.gram_function(double, "block")?;
        // SAFETY: the arguments are those of `block` in gram.cu; the caller has room for count × r numbers.
        unsafe { self.turn.launch(function, (blocks, 1), THREADS, 0, arguments![a, b, self.kernel, out, narrow]) }
    }

    /// `added`: what was added to the diagonal of K.
    pub(super) fn build_preconditioner(&mut self, f: Current, added: f64) -> Result<bool, CudaError> {
        let begun = phases::begin();
        let cg = self.matrix.cg.address();
        let built = match &mut self.matrix.preconditioner {
            Some(made) => made.build(&self.turn, f.set, f.list, f.m, cg, added),
            None => Ok(false),
        };
        phases::end(begun, "invert the preconditioner", 0.0, Some(&self.turn));
        built
    }

    /// Variables that were just pinned leave the preconditioner.
    fn take_out_pinned(&mut self, f: Current) -> Result<(), CudaError> {
        let begun = phases::begin();
        self.kept.get(&self.turn, f.m as usize)?;
        let count = self.select(self.fresh.held(), f.m as usize, self.kept.held())?;
        match &mut self.matrix.preconditioner {
            Some(made) if count > 0 => made.add(&self.turn, f.list, Some(self.kept.address()), count, -1.0)?,
            _ => {}
        }
        phases::end(begun, "preconditioner without pinned", count as f64, Some(&self.turn));
        Ok(())
    }

    /// K over the points of F; `place`: which of the shrunk sets it is.
    pub(super) fn fill_matrix(&mut self, f: Current, place: Option<usize>) -> Result<(), CudaError> {
        let rows = match place {
            None => self.whole.rows.held(),
            Some(place) => self.shrunk[place].rows.held(),
        };
        let begun = phases::begin();
        let small = self.small && (!self.stiff || self.coarse);
        let side = self.points.side(Some(rows), 0, f.m);
        let out = self.matrix.make_room(&self.turn, f.m, small)?;
        match &self.packed {
            Some(packed) if small => {
                let side = packed.side(Some(f.list), 0, f.m as usize);
                PackedPoints::triangle(&self.turn, side, self.kernel, out)?;
            }
            _ => {
                let across = self.matrix.across();
                let kind = if small { "u16" } else { "f32" };
                let (_, statistic) = KernelArgument::of(&self.gram.kernel);
                let function = self.turn.function(Module::Tiles, &format!("tiles_{kind}_{statistic}"), 0)?;
                let blocks = 4 * (across * (across + 1) / 2);
                // SAFETY: the arguments are those of `tiles`; there is room for all tiles.
                unsafe {
                    self.turn.launch(function, (blocks, 1), THREADS, 0, arguments![side, self.kernel, across, out])?
                };
            }
        }
        let entries = u64::from(f.m).pow(2) / 2;
        self.entries += entries;
        phases::end(begun, "matrix of the set", entries as f64, Some(&self.turn));
        Ok(())
    }

    /// Pins what leaves its piece; `after`: once the run of conjugate gradients is done.
    pub(super) fn pin(&mut self, f: Current, part: u32, few: u32, after: bool) -> Result<(), CudaError> {
        let after = u32::from(after);
        let (violation, free) = (self.last.violation, self.last.free);
        let fresh = self.fresh.get(&self.turn, f.m as usize)?.address();
        let (m, paired, state, cg) = (f.m, self.problem.paired, self.state.address(), self.matrix.cg.address());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.pin,
                (1, 1),
                ONE,
                0,
                arguments![m, f.set, state, cg, self.taken.address(), part, few, paired, fresh, after],
            )?;
        }
        self.read_state()?;
        debug_assert!(self.last.violation == violation && self.last.free == free);
        Ok(())
    }

    pub(super) fn keep_moves(&mut self, f: Current, all: bool) -> Result<(), CudaError> {
        let (m, all) = (f.m, u32::from(all));
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.keep_moves,
                grid(m as usize),
                THREADS,
                0,
                arguments![m, f.set, f.list, self.moves.address(), self.moving.address(), all],
            )
        }
    }

    /// F without what was pinned: its moves go into the slopes, and the matrix is computed anew.
    fn shrink(&mut self, f: Current, place: usize) -> Result<Current, CudaError> {
        let (m, one, kq) = (f.m, 1u32, self.matrix.kq.address());
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(self.programs.load_q, grid(m as usize), THREADS, 0, arguments![m, f.set, one])?;
            self.matrix.multiply(&self.turn, &self.programs, f.set, true)?;
            self.keep_moves(f, false)?;
            self.turn.launch(self.programs.add_taken, (1, 1), ONE, 0, arguments![m, f.set, self.taken.address()])?;
        }
        self.kept.get(&self.turn, m as usize)?;
        let mask = match f.rows == self.whole.rows.address() {
            true => self.whole.mask.held(),
            false => self.shrunk[1 - place].mask.held(),
        };
        let left = self.select(mask, m as usize, self.kept.held())?;
        let set = self.shrunk[place].get(&self.turn, left)?;
        let (list, rows) = (self.shrunk[place].list.address(), self.shrunk[place].rows.address());
        let (count, kept) = (left as u32, self.kept.address());
        // SAFETY: the arguments are those of the program; the sets are different memory.
        unsafe {
            self.turn.launch(
                self.programs.compact,
                grid(left),
                THREADS,
                0,
                arguments![count, kept, f.set, kq, f.list, f.rows, set, list, rows],
            )?;
        }
        let now = Current { set, m: count, list, rows };
        self.fill_matrix(now, Some(place))?;
        Ok(now)
    }
}
