//! `K_FF` as tiles, and conjugate gradients on it.

use super::precondition::Preconditioner;
use super::programs::Programs;
use super::state::{Cg, Room, Set};
use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, Turn, arguments};
use crate::error::CudaError;
use crate::points::Side;

/// Rows and columns of a stored tile: `SIDE` of solver.cu.
pub(super) const SIDE: u32 = 128;
/// Threads of programs of a single block.
pub(super) const ONE: u32 = 1024;

/// `K_FF` and the vectors of conjugate gradients.
#[derive(Debug)]
pub(super) struct Matrix {
    /// Whether entries of the current tiles are 16-bit numbers.
    small: bool,
    /// The preconditioner, where one is in use.
    pub(super) preconditioner: Option<Preconditioner>,
    tiles: Room<u8>,
    by_row: Room<f32>,
    by_column: Room<f32>,
    r: Room<f64>,
    pub(super) kq: Room<f64>,
    pub(super) parts: Buffer<f64>,
    pub(super) cg: Buffer<Cg>,
    /// Variables of the current tiles.
    m: u32,
}

/// How accurate a solution has to be: `aim` for the largest residual, `share` of the first residual in the mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    pub(super) aim: f64,
    pub(super) floor: f64,
    pub(super) share: f64,
    pub(super) most: u32,
}

impl Matrix {
    pub(super) fn new(turn: &Turn<'_>, small: bool) -> Result<Self, CudaError> {
        Ok(Self {
            small,
            preconditioner: None,
            tiles: Room::default(),
            by_row: Room::default(),
            by_column: Room::default(),
            r: Room::default(),
            kq: Room::default(),
            parts: turn.allocate(1 << 18, "sums")?,
            cg: turn.allocate(1, "sums")?,
            m: 0,
        })
    }

    /// Bytes of the tiles of m variables.
    pub(super) fn bytes(m: usize, small: bool) -> u64 {
        let across = m.div_ceil(SIDE as usize) as u64;
        across * (across + 1) / 2 * u64::from(SIDE * SIDE) * if small { 2 } else { 4 }
    }

    /// The largest number of variables whose tiles fit.
    pub(super) fn most(bytes: u64, small: bool) -> usize {
        (bytes as f64 / if small { 1.0 } else { 2.0 }).sqrt() as usize
    }

    fn across(&self) -> u32 {
        self.m.div_ceil(SIDE)
    }

    /// Computes the tiles of the points `f`, with 16-bit or single-precision entries.
    pub(super) fn fill(
        &mut self,
        turn: &Turn<'_>,
        programs: &Programs,
        f: Side,
        kernel: KernelArgument,
        small: bool,
    ) -> Result<u64, CudaError> {
        self.small = small;
        self.m = f.count();
        let across = self.across();
        let tiles = across * (across + 1) / 2;
        let out = self.tiles.get(turn, Self::bytes(self.m as usize, self.small) as usize)?.address();
        self.r.get(turn, self.m as usize)?;
        self.kq.get(turn, self.m as usize)?;
        // SAFETY: the arguments are those of `tiles`; there is room for all tiles.
        unsafe {
            turn.launch(
                programs.tiles[usize::from(!small)],
                (4 * tiles, 1),
                256,
                0,
                arguments![f, kernel, across, out],
            )?
        };
        Ok(u64::from(self.m).pow(2) / 2)
    }

    /// kq = (K + d)·q, on the rows of the mask or on all; does nothing when the iteration is done.
    pub(super) fn multiply(
        &mut self,
        turn: &Turn<'_>,
        programs: &Programs,
        f: Set,
        all: bool,
    ) -> Result<(), CudaError> {
        let (across, m, all) = (self.across(), self.m, u32::from(all));
        let tiles = u64::from(across) * u64::from(across + 1) / 2;
        // Longer chunks write fewer sums, shorter ones keep the card busy.
        let chunk = match tiles {
            16_001.. => 16u32,
            6_001.. => 8,
            1_501.. => 4,
            501.. => 2,
            _ => 1,
        };
        let blocks = across * across.div_ceil(chunk);
        let by_row = self.by_row.get(turn, (blocks * SIDE) as usize)?.address();
        let by_column = self.by_column.get(turn, tiles as usize * SIDE as usize)?.address();
        let scale = if self.small { 1.0 / 65535.0 } else { 1.0f64 };
        let (tiles, cg) = (self.tiles.address(), self.cg.address());
        // SAFETY: the arguments are those of `multiply` and `multiply_sum`; all rooms are large enough.
        unsafe {
            turn.launch(
                programs.multiply[usize::from(!self.small)],
                (blocks, 1),
                256,
                0,
                arguments![tiles, across, chunk, f.q, by_row, by_column, cg],
            )?;
            turn.launch(
                programs.multiply_sum,
                (across, 1),
                256,
                0,
                arguments![
                    m,
                    across,
                    chunk,
                    scale,
                    f,
                    by_row,
                    by_column,
                    all,
                    self.kq.address(),
                    self.parts.address(),
                    cg
                ],
            )
        }
    }

    /// Starts from x, whose product is in `kq` if `have`.
    pub(super) fn start(
        &mut self,
        turn: &Turn<'_>,
        programs: &Programs,
        f: Set,
        have: bool,
        paired: u32,
        aim: Aim,
    ) -> Result<(), CudaError> {
        let (m, have) = (self.m, u32::from(have));
        let (kq, r, cg) = (self.kq.address(), self.r.address(), self.cg.address());
        // SAFETY: the arguments are those of `cg_start`.
        unsafe {
            turn.launch(
                programs.cg_start,
                (1, 1),
                ONE,
                0,
                arguments![m, f, kq, have, r, cg, paired, aim.aim, aim.floor, aim.share, aim.most],
            )
        }
    }

    /// Goes on with another aim.
    pub(super) fn tighten(&mut self, turn: &Turn<'_>, programs: &Programs, aim: Aim) -> Result<(), CudaError> {
        // SAFETY: the arguments are those of `cg_tighten`.
        unsafe {
            turn.launch(programs.cg_tighten, (1, 1), 1, 0, arguments![self.cg.address(), aim.aim, aim.share, aim.most])
        }
    }

    /// The preconditioner, if it is to be used.
    fn used(&self, with: bool) -> Option<&Preconditioner> {
        self.preconditioner.as_ref().filter(|_| with)
    }

    /// The first direction of a preconditioned run, after `start`.
    pub(super) fn first_direction(&self, turn: &Turn<'_>, f: Set, list: u64, paired: u32) -> Result<(), CudaError> {
        match &self.preconditioner {
            Some(p) => p.first_direction(turn, f, list, self.m, self.r.address(), &self.cg, paired),
            None => Ok(()),
        }
    }

    /// A few steps, preconditioned or not; returns the state after them.
    pub(super) fn steps(
        &mut self,
        turn: &Turn<'_>,
        programs: &Programs,
        f: Set,
        list: u64,
        paired: u32,
        preconditioned: bool,
    ) -> Result<Cg, CudaError> {
        // Reading back takes as long as a product with some 10 000 variables.
        let batch = match self.m {
            60_001.. => 2,
            20_001.. => 4,
            6_001.. => 6,
            _ => 8,
        };
        let (m, blocks) = (self.m, self.across());
        for _ in 0..batch {
            self.multiply(turn, programs, f, false)?;
            let (r, kq, cg, parts) = (self.r.address(), self.kq.address(), self.cg.address(), self.parts.address());
            if let Some(p) = self.used(preconditioned) {
                p.step(turn, f, list, m, [r, kq, parts], blocks, &self.cg, paired)?;
                continue;
            }
            // SAFETY: the arguments are those of `cg_step`.
            unsafe {
                turn.launch(programs.cg_step, (1, 1), ONE, 0, arguments![m, f, r, kq, parts, blocks, cg, paired])?;
            }
        }
        let mut state = [Cg::default()];
        turn.read(&self.cg, 0, &mut state)?;
        Ok(state[0])
    }
}
