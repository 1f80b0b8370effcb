//! `K_FF` as tiles, and conjugate gradients on it.

use super::precondition::Preconditioner;
use super::programs::Programs;
use super::state::{Cg, Room, Set};
use crate::driver::{Buffer, Turn, arguments};
use crate::error::CudaError;

/// Rows and columns of a stored tile: `SIDE` of solver.cu.
pub(super) const SIDE: u32 = 128;
/// Entries that one run of conjugate gradients reads at most before interrupts are looked for: a few milliseconds.
const ENTRIES_PER_RUN: f64 = 4e10;
/// Bytes of tiles that are to stay in the second-level cache of a card between products: less than half of it where data-centre
/// cards have two parts that may both hold a line. A smaller cache evicts them like anything else.
const STAYING: u32 = 24 << 20;
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
    /// Counts blocks that have arrived where they wait for each other.
    arrived: Buffer<u32>,
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
            arrived: turn.allocate(1, "sums")?,
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

    pub(super) fn across(&self) -> u32 {
        self.m.div_ceil(SIDE)
    }

    /// Room for the tiles of m variables with 16-bit or single-precision entries, to be filled at the address that is returned.
    pub(super) fn make_room(&mut self, turn: &Turn<'_>, m: u32, small: bool) -> Result<u64, CudaError> {
        (self.small, self.m) = (small, m);
        self.r.get(turn, m as usize)?;
        self.kq.get(turn, m as usize)?;
        Ok(self.tiles.get(turn, Self::bytes(m as usize, small) as usize)?.address())
    }

    /// Tiles that one block multiplies, and where the sums over rows and over columns go.
    fn room_for_sums(&mut self, turn: &Turn<'_>) -> Result<(u32, u64, u64), CudaError> {
        let across = self.across();
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
        Ok((chunk, by_row, by_column))
    }

    /// Tiles that stay in the second-level cache.
    fn staying(&self) -> u32 {
        STAYING / (SIDE * SIDE * if self.small { 2 } else { 4 })
    }

    /// Steps without a preconditioner until the aim is reached, or for some milliseconds.
    pub(super) fn run(&mut self, turn: &Turn<'_>, programs: &Programs, f: Set, paired: u32) -> Result<(), CudaError> {
        let (across, m) = (self.across(), self.m);
        let (chunk, by_row, by_column) = self.room_for_sums(turn)?;
        let grid = programs.together.min((across * across.div_ceil(chunk)).max(32));
        let most = (ENTRIES_PER_RUN / (f64::from(m) * f64::from(m))).clamp(4.0, 400.0) as u32;
        let (scale, stay) = (if self.small { 1.0 / 65535.0 } else { 1.0f64 }, self.staying());
        let [tiles, r, kq] = [self.tiles.address(), self.r.address(), self.kq.address()];
        let [parts, cg, arrived] = [self.parts.address(), self.cg.address(), self.arrived.address()];
        turn.fill(&self.arrived, 1, 0)?;
        // SAFETY: the arguments are those of `cg_run`; `parts` has room for two numbers per row of tiles and per block.
        unsafe {
            turn.launch_together(
                programs.cg_run[usize::from(!self.small)],
                grid,
                256,
                arguments![
                    tiles, m, across, chunk, stay, scale, f, by_row, by_column, r, kq, parts, cg, paired, most, arrived
                ],
            )
        }
    }

    /// The state of the iteration.
    pub(super) fn state(&self, turn: &Turn<'_>) -> Result<Cg, CudaError> {
        let mut state = [Cg::default()];
        turn.read(&self.cg, 0, &mut state)?;
        Ok(state[0])
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
        let (chunk, by_row, by_column) = self.room_for_sums(turn)?;
        let blocks = across * across.div_ceil(chunk);
        let (scale, stay) = (if self.small { 1.0 / 65535.0 } else { 1.0f64 }, self.staying());
        let (tiles, cg) = (self.tiles.address(), self.cg.address());
        // SAFETY: the arguments are those of `multiply` and `multiply_sum`; all rooms are large enough.
        unsafe {
            turn.launch(
                programs.multiply[usize::from(!self.small)],
                (blocks, 1),
                256,
                0,
                arguments![tiles, across, chunk, stay, f.q, by_row, by_column, cg],
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

    /// The first direction of a preconditioned run, after `start`.
    pub(super) fn first_direction(&self, turn: &Turn<'_>, f: Set, list: u64, paired: u32) -> Result<(), CudaError> {
        match &self.preconditioner {
            Some(p) => p.first_direction(turn, f, list, self.m, self.r.address(), &self.cg, paired),
            None => Ok(()),
        }
    }

    /// A few preconditioned steps.
    pub(super) fn steps(
        &mut self,
        turn: &Turn<'_>,
        programs: &Programs,
        f: Set,
        list: u64,
        paired: u32,
    ) -> Result<(), CudaError> {
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
            let (r, kq, parts) = (self.r.address(), self.kq.address(), self.parts.address());
            if let Some(p) = &self.preconditioner {
                p.step(turn, f, list, m, [r, kq, parts], blocks, &self.cg, paired)?;
            }
        }
        Ok(())
    }
}
