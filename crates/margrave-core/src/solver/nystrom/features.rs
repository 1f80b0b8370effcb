//! The centres and the features F = K_nS·L⁻ᵀ of all rows.

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::centres::CentreSearch;
use super::recomputed::RecomputedFeatures;
use super::stored::StoredFeatures;
use crate::backend::RowSource;
use crate::control::{Control, Threads};
use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::{Gram, Matrix, Pick, Precision};
use crate::kernel::Kernel;
use crate::linalg::factor::{Cholesky, FactorError};

/// Fewest rows among which centres are drawn, if there are so many.
const MIN_CANDIDATES: usize = 8192;
/// Candidates per centre.
const CANDIDATES_PER_CENTRE: usize = 8;
/// Most centres for which the second moments of all curved rows are formed, if features are stored.
pub(super) const MAX_FORMED: usize = 1500;
/// Most centres for which F itself is stored where kernel entries in single precision would do.
const MAX_WHITENED: usize = 300;
/// Rows per task when features are stored.
const TASK_ROWS: usize = 256;

/// m centres: rows of the data, and the Cholesky factor of K over them, in the order they were drawn.
pub struct Centres {
    /// Rows of the data.
    pub rows: Vec<u32>,
    /// The centres themselves.
    pub points: Points,
    /// K_SS = L·Lᵀ.
    pub factor: Cholesky<f64>,
    /// Smallest entry of the diagonal of L, squared, relative to the largest: how nearly dependent the centres are.
    pub least_pivot: f64,
}

impl Centres {
    /// Number of centres.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// a = L⁻ᵀw: the coefficients of the centres.
    pub fn coefficients(&self, weights: &[f64], threads: &Threads) -> Vec<f64> {
        let mut a = weights.to_vec();
        self.factor.solve_upper(&mut a, threads);
        a
    }
}

/// Where centres are drawn, and the features of those rows.
struct Candidates {
    /// Ascending.
    rows: Vec<u32>,
    points: Points,
    gram: Box<dyn Gram>,
    search: CentreSearch,
}

/// The features of all rows on nested sets of centres.
pub struct Features<'a> {
    kernel: Kernel,
    source: RowSource<'a>,
    candidates: Candidates,
    memory: u64,
    entries_before: u64,
}

/// The features on one set of centres.
pub struct FeatureSet<'a> {
    /// The centres.
    pub centres: Centres,
    kernel: Kernel,
    source: RowSource<'a>,
    matrix: FeatureMatrix<'a>,
    /// Rows that solvers may start from and their features, if those of all rows are recomputed in double precision.
    pub sample: Option<(Vec<u32>, Points)>,
}

pub(super) enum FeatureMatrix<'a> {
    Stored(StoredFeatures),
    Recomputed(RecomputedFeatures<'a>),
}

impl<'a> FeatureSet<'a> {
    /// F of all rows.
    pub fn matrix(&self) -> &dyn Matrix {
        match &self.matrix {
            FeatureMatrix::Stored(matrix) => matrix,
            FeatureMatrix::Recomputed(matrix) => matrix,
        }
    }

    /// Whether F is stored.
    pub fn is_stored(&self) -> bool {
        matches!(self.matrix, FeatureMatrix::Stored(_))
    }

    /// The features of some of the rows, recomputed.
    pub(super) fn of_rows(&self, rows: &[u32], control: &Control) -> Result<RecomputedFeatures<'a>> {
        let points = self.source.gather(rows, control)?;
        RecomputedFeatures::new(self.kernel, &RowSource::Memory(points), &self.centres, control)
    }

    pub(super) fn recomputed(&self) -> Option<&RecomputedFeatures<'a>> {
        match &self.matrix {
            FeatureMatrix::Stored(_) => None,
            FeatureMatrix::Recomputed(matrix) => Some(matrix),
        }
    }
}

impl<'a> Features<'a> {
    /// Prepares a search for up to `most` centres among the rows of `source`. `memory`: bytes for features.
    pub fn new(
        kernel: Kernel,
        source: &RowSource<'a>,
        most: usize,
        memory: u64,
        seed: u64,
        control: &Control,
    ) -> Result<Self> {
        let n = source.len();
        // Three quarters of the candidates' share of memory are their features.
        let affordable = usize::try_from(memory / (3 * 8 * most.max(1) as u64)).unwrap_or(usize::MAX);
        let wanted = (CANDIDATES_PER_CENTRE * most).max(MIN_CANDIDATES).min(affordable).max(2 * most).min(n);
        let rows: Vec<u32> = if wanted >= n || 10 * wanted >= 9 * n && affordable >= n {
            (0..n as u32).collect()
        } else {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6361_6e64);
            let mut rows: Vec<u32> = index::sample(&mut rng, n, wanted).iter().map(|i| i as u32).collect();
            rows.sort_unstable();
            rows
        };
        let mut features = Self::among(kernel, source, rows, memory, seed, control)?;
        let Candidates { gram, search, .. } = &mut features.candidates;
        *search = CentreSearch::new(gram.diag(), seed).on_device(gram.pivoted(most));
        Ok(features)
    }

    /// The same with centres drawn among the given rows, ascending.
    pub fn among(
        kernel: Kernel,
        source: &RowSource<'a>,
        rows: Vec<u32>,
        memory: u64,
        seed: u64,
        control: &Control,
    ) -> Result<Self> {
        let points = match source.points() {
            Some(points) if rows.len() == points.len() => points.clone(),
            _ => source.gather(&rows, control)?,
        };
        let gram = control.backend().square_gram(kernel, &points)?;
        let search = CentreSearch::new(gram.diag(), seed);
        let candidates = Candidates { rows, points, gram, search };
        Ok(Self { kernel, source: source.clone(), candidates, memory, entries_before: 0 })
    }

    /// Kernel entries computed so far for the choice of centres and for stored features.
    pub fn entries(&self) -> u64 {
        self.candidates.gram.entries() + self.entries_before
    }

    /// Share of the trace of K that the centres drawn so far do not represent, over the candidates.
    pub fn residual_share(&self) -> f64 {
        self.candidates.search.residual_share()
    }

    /// The features on the first `m` centres, or on fewer if K is exhausted.
    pub fn on(&mut self, m: usize, control: &Control) -> Result<FeatureSet<'a>> {
        let Candidates { rows, points, gram, search } = &mut self.candidates;
        search.grow(gram.as_ref(), m, control)?;
        let m = m.min(search.pivots().len());
        if m == 0 {
            return Err(Error::data("every k(x, x) is 0: there is nothing to approximate"));
        }
        let places = &search.pivots()[..m];
        let centre_rows: Vec<u32> = places.iter().map(|&at| rows[at as usize]).collect();
        let (factor, m) = factor(gram.as_ref(), places, control)?;
        let centre_rows = centre_rows[..m].to_vec();
        let points = points.gather(&search.pivots()[..m]);
        let least_pivot = least_pivot(&factor);
        let centres = Centres { rows: centre_rows, points, factor, least_pivot };
        let set = |centres, matrix, sample| FeatureSet {
            centres,
            kernel: self.kernel,
            source: self.source.clone(),
            matrix,
            sample,
        };
        let recomputed = RecomputedFeatures::new(self.kernel, &self.source, &centres, control)?;
        if recomputed.on_device() {
            return Ok(set(centres, FeatureMatrix::Recomputed(recomputed), None));
        }
        let all = self.candidates.rows.len() == self.source.len();
        let n = self.source.len();
        let bytes = n as u64 * m as u64 * 8;
        let sampled = |q: usize| -> Option<Result<Points>> {
            self.candidates.search.features(m, &control.threads).map(|features| Points::dense_f64(q, m, features))
        };
        if all
            && bytes <= self.memory
            && let Some(features) = sampled(n)
        {
            return Ok(set(centres, FeatureMatrix::Stored(StoredFeatures::new(features?, control)), None));
        }
        // L⁻ᵀ costs more than all products of a training together, and those can do without it.
        let raw = m > MAX_WHITENED && recomputed.precision == Precision::Single;
        if bytes / 2 <= self.memory && !raw {
            let (features, entries) = self.store(&centres, control)?;
            self.entries_before += entries;
            let matrix = FeatureMatrix::Stored(StoredFeatures::new(features, control));
            return Ok(set(centres, matrix, None));
        }
        let rows = self.candidates.rows.clone();
        let sample = match recomputed.precision {
            Precision::Single => None,
            Precision::Double => match sampled(rows.len()) {
                Some(features) => Some((rows, features?)),
                None => None,
            },
        };
        Ok(set(centres, FeatureMatrix::Recomputed(recomputed), sample))
    }

    /// F in single precision, computed in double, and the number of entries.
    fn store(&self, centres: &Centres, control: &Control) -> Result<(Points, u64)> {
        let (n, m) = (self.source.len(), centres.len());
        let gram = self.source.gram(self.kernel, &centres.points, control)?;
        let mut values = vec![0f32; n * m];
        let one = control.with_threads(Threads::one());
        control.threads.chunks(&mut values, TASK_ROWS * m, |task, part| {
            let (from, count) = (task * TASK_ROWS, part.len() / m);
            let mut block = vec![0.0; part.len()];
            if gram.block_f64(Pick::Range(from, from + count), Pick::All, &mut block, &one).is_ok() {
                centres.factor.whiten(&mut block, count, &one.threads);
                part.iter_mut().zip(&block).for_each(|(to, v)| *to = *v as f32);
            }
        });
        control.check()?;
        Ok((Points::dense_f32(n, m, values)?, gram.entries()))
    }
}

/// The factor of K over the pivots, of fewer of them if the last ones are dependent to working precision.
fn factor(gram: &dyn Gram, places: &[u32], control: &Control) -> Result<(Cholesky<f64>, usize)> {
    let mut m = places.len();
    loop {
        let of = &places[..m];
        let mut k = vec![0.0; m * m];
        gram.block_f64(Pick::List(of), Pick::List(of), &mut k, control)?;
        match Cholesky::new(k, m, m, control) {
            Ok(factor) => return Ok((factor, m)),
            Err(FactorError::Interrupted(why)) => return Err(why.into()),
            Err(FactorError::NotPositive(0)) => return Err(Error::data("the kernel matrix is not positive definite")),
            Err(FactorError::NotPositive(at)) => m = at,
        }
    }
}

fn least_pivot(factor: &Cholesky<f64>) -> f64 {
    let diagonal = factor.diagonal();
    let (least, largest) = diagonal.iter().fold((f64::INFINITY, 0.0f64), |(a, b), l| (a.min(*l), b.max(*l)));
    (least / largest).powi(2)
}
