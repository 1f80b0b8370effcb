//! Chains of problems on the card, for searches (`kernels/chains.cu`).

use std::time::Instant;

use margrave_core::control::{Control, Interrupt};
use margrave_core::data::Points;
use margrave_core::gram::{ChainPoint, ChainSolver, ProblemChain, uniform};
use margrave_core::kernel::Kernel;

use crate::backend::CudaBackend;
use crate::driver::{Buffer, Plain, Turn, arguments};
use crate::gram::{CudaGram, Stop};
use crate::phases::phase;
use crate::ptx::Module;

/// Threads of a block: `THREADS` of chains.cu.
const THREADS: u32 = 1024;
/// Programs by the rows of a thread.
const PROGRAMS: [(usize, &str); 3] = [(2, "chains2"), (5, "chains5"), (8, "chains8")];
/// Steps of the first launch, and seconds that a launch should take.
const FIRST: u32 = 2000;
const SLICE: f64 = 0.03;
/// Links that go on side by side: as many as the largest cards run at the same time.
const MOST_LATER: usize = 160;
/// Memory on the card that is left for programs and results.
const SPARE: u64 = 512 << 20;

/// `Task` of chains.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Task {
    kernel: u32,
    links: u32,
    first: u64,
    link: u32,
    begun: u32,
    limit: u64,
}
// SAFETY: numbers of fixed size, without gaps.
unsafe impl Plain for Task {}

/// `Link` of chains.cu.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Link {
    ratio: f64,
    eps: f64,
    d: f64,
    tol: f64,
    violation: f64,
    steps: u64,
    reached: u64,
}
// SAFETY: numbers of fixed size, without gaps.
unsafe impl Plain for Link {}

/// `Request` of chains.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Request {
    matrices: u64,
    p: u64,
    lo: u64,
    hi: u64,
    beta: u64,
    scores: u64,
    gradient: u64,
    other: u64,
    change: u64,
    tasks: u64,
    links: u64,
    open: u64,
    n: u32,
    budget: u32,
}

impl ChainSolver for CudaBackend {
    fn solve(
        &self,
        points: &Points,
        kernels: &[Kernel],
        chains: &[ProblemChain],
        control: &Control,
    ) -> Option<Vec<Vec<ChainPoint>>> {
        match self.solve_chains(points, kernels, chains, control) {
            Ok(found) => found,
            Err(Stop::Interrupt(_)) => None,
            Err(Stop::Failure(error)) => {
                self.note(error);
                None
            }
        }
    }
}

/// The terms of all links, one array per quantity.
struct Terms {
    p: Vec<f64>,
    lo: Vec<f64>,
    hi: Vec<f64>,
    links: Vec<Link>,
    tasks: Vec<Task>,
}

impl Terms {
    /// `None` if the chains are not those that the programs solve.
    fn new(chains: &[ProblemChain], kernels: &[Kernel], n: usize) -> Option<Self> {
        let total = chains.iter().map(|chain| chain.links.len()).sum::<usize>();
        let room = || Vec::with_capacity(total * n);
        let mut terms = Self { p: room(), lo: room(), hi: room(), links: Vec::new(), tasks: Vec::new() };
        for chain in chains {
            kernels.get(chain.kernel).filter(|kernel| kernel.unit_diagonal())?;
            let first = terms.links.len() as u64;
            let (kernel, links) = (chain.kernel as u32, chain.links.len() as u32);
            terms.tasks.push(Task { kernel, links, first, link: 0, begun: 0, limit: chain.steps });
            for link in &chain.links {
                let (eps, d) = uniform(&link.terms).filter(|_| link.terms.len() == n)?;
                terms.p.extend(link.terms.iter().map(|t| t.p));
                terms.lo.extend(link.terms.iter().map(|t| t.lo));
                terms.hi.extend(link.terms.iter().map(|t| t.hi));
                terms.links.push(Link { ratio: link.ratio, eps, d, tol: link.tol, ..Link::default() });
            }
        }
        Some(terms)
    }
}

impl CudaBackend {
    fn solve_chains(
        &self,
        points: &Points,
        kernels: &[Kernel],
        chains: &[ProblemChain],
        control: &Control,
    ) -> Result<Option<Vec<Vec<ChainPoint>>>, Stop> {
        let n = points.len();
        let program = PROGRAMS.iter().find(|(rows, _)| n <= rows * THREADS as usize);
        let (Some((_, program)), Some(terms)) = (program, Terms::new(chains, kernels, n)) else { return Ok(None) };
        let grams: Result<Vec<CudaGram>, _> =
            kernels.iter().map(|kernel| CudaGram::square(self.raw_card(), *kernel, points)).collect();
        let Ok(grams) = grams else { return Ok(None) };
        let (per_link, per_chain) = (terms.links.len() * n, chains.len().max(MOST_LATER) * n);
        let needed = (kernels.len() * n * n * 4 + per_link * 40 + per_chain * 24) as u64 + SPARE;
        if needed > self.raw_card().enter()?.free_memory()? {
            return Ok(None);
        }
        // Each Gram takes a turn of its own to copy its points.
        let turn = self.raw_card().enter()?;
        let what = "the matrices of a search";
        let matrices: Buffer<f32> = turn.allocate(kernels.len() * n * n, what)?;
        phase("matrices of a search", (kernels.len() * n * n) as f64, Some(&turn), || {
            for (at, gram) in grams.iter().enumerate() {
                control.check()?;
                gram.fill(&turn, matrices.address() + (at * n * n * 4) as u64)?;
            }
            Ok::<(), Stop>(())
        })?;
        let room = |len| turn.allocate::<f64>(len, "the problems of a search");
        // Links that go on later are chains of their own.
        let most = chains.len().max(MOST_LATER);
        let (p, lo, hi) = (turn.upload(&terms.p, what)?, turn.upload(&terms.lo, what)?, turn.upload(&terms.hi, what)?);
        let (beta, scores) = (room(per_link)?, room(per_link)?);
        let (gradient, other, change) = (room(most * n)?, room(most * n)?, room(most * n)?);
        let (tasks, links) = (turn.upload(&terms.tasks, what)?, turn.upload(&terms.links, what)?);
        let open: Buffer<u32> = turn.allocate(1, what)?;
        let mut request = Request {
            matrices: matrices.address(),
            p: p.address(),
            lo: lo.address(),
            hi: hi.address(),
            beta: beta.address(),
            scores: scores.address(),
            gradient: gradient.address(),
            other: other.address(),
            change: change.address(),
            tasks: tasks.address(),
            links: links.address(),
            open: open.address(),
            n: n as u32,
            budget: FIRST,
        };
        phase("chains of a search", 0.0, Some(&turn), || run(&turn, program, request, &open, chains.len(), control))?;
        let mut found = terms.links;
        turn.read(&links, 0, &mut found)?;
        let more = chains.iter().map(|chain| chain.more).max().unwrap_or(0);
        let open_links: Vec<Task> = terms.tasks.iter().flat_map(|task| going_on(task, &found, more)).collect();
        phase("links of a search that go on", 0.0, Some(&turn), || {
            for part in open_links.chunks(MOST_LATER).filter(|_| more > 0) {
                let later = turn.upload(part, what)?;
                request.tasks = later.address();
                run(&turn, program, request, &open, part.len(), control)?;
            }
            Ok::<(), Stop>(())
        })?;
        turn.read(&links, 0, &mut found)?;
        let mut all = [vec![0.0; per_link], vec![0.0; per_link]];
        turn.read(&beta, 0, &mut all[0])?;
        turn.read(&scores, 0, &mut all[1])?;
        let point = |at: usize| {
            let own = |values: &[f64]| values[at * n..(at + 1) * n].to_vec();
            ChainPoint {
                beta: own(&all[0]),
                scores: own(&all[1]),
                steps: found[at].steps,
                reached: found[at].reached != 0,
            }
        };
        let of_chain = |task: &Task| (0..task.links as usize).map(|link| point(task.first as usize + link)).collect();
        Ok(Some(terms.tasks.iter().map(of_chain).collect()))
    }
}

/// The links of a chain that have not reached their violation, each as a chain of its own that goes on from its scores.
fn going_on(task: &Task, links: &[Link], more: u64) -> Vec<Task> {
    let open = (task.first..task.first + u64::from(task.links)).filter(|&link| links[link as usize].reached == 0);
    open.map(|first| Task { links: 1, first, link: 0, begun: 2, limit: task.limit + more, ..*task }).collect()
}

/// Launches until all chains have ended.
fn run(
    turn: &Turn<'_>,
    program: &str,
    mut request: Request,
    open: &Buffer<u32>,
    chains: usize,
    control: &Control,
) -> Result<(), Stop> {
    let function = turn.function(Module::Chains, program, 0)?;
    loop {
        control.check().map_err(|why: Interrupt| Stop::Interrupt(why))?;
        turn.fill(open, 1, 0)?;
        let begun = Instant::now();
        // SAFETY: the argument is that of the programs; all arrays have the sizes they expect.
        unsafe { turn.launch(function, (chains as u32, 1), THREADS, 0, arguments![request])? };
        let mut left = [0u32];
        turn.read(open, 0, &mut left)?;
        if left[0] == 0 {
            return Ok(());
        }
        let pace = SLICE / begun.elapsed().as_secs_f64().max(1e-6);
        request.budget = (f64::from(request.budget) * pace.clamp(0.25, 4.0)).clamp(100.0, 1e6) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_laid_out_as_in_the_programs() {
        assert_eq!((size_of::<Task>(), size_of::<Link>(), size_of::<Request>()), (32, 56, 104));
    }
}
