//! The engine thread of a session: everything that takes long, one job after the other.

mod train;
mod tune;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use margrave::engine::backend::cpu::CpuGram;
use margrave::engine::observe::Silent;
use margrave::engine::solver::ridge::{self, PathOptions, PathPoint, Source as RidgeSource};
use margrave::{Budget, Cancel, Control, Kernel};
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::data::{Data, Reading, Source};
use crate::session::{App, Job, Session};
use crate::settings::Settings;
use crate::views::evaluation;

/// Rows up to which every λ is computed from one decomposition.
const PATH_ROWS: usize = 5000;

/// Does the jobs of a session until it ends.
pub(crate) fn work(app: &Arc<App>, session: &Session) {
    while let Some((job, cancel)) = session.next() {
        let (what, run) = (job.kind(), if let Job::Train(job) = &job { Some(job.run) } else { None });
        let done = catch_unwind(AssertUnwindSafe(|| perform(app, session, job, &cancel)));
        let refusal = match done {
            Ok(Ok(())) => continue,
            Ok(Err(refusal)) => refusal,
            Err(_) => Refusal::new(500, "internal", "a computation failed unexpectedly: this is a bug"),
        };
        fail(session, what, run, &refusal);
    }
}

/// Tells the page that a job failed.
fn fail(session: &Session, what: &str, run: Option<u64>, refusal: &Refusal) {
    let mut inner = session.inner();
    if what == "load" {
        inner.loading = None;
        inner.failed = Some(refusal.json());
    }
    if let Some(run) = run.and_then(|id| inner.run_mut(id)) {
        run.status = "failed";
        run.error = Some(refusal.json());
    }
    drop(inner);
    session.events.send("failed", json!({ "what": what, "run": run, "error": refusal.json() }));
}

fn perform(app: &Arc<App>, session: &Session, job: Job, cancel: &Cancel) -> Result<(), Refusal> {
    match job {
        Job::Load { source, reading, upload } => load(app, session, source, &reading, upload.as_deref()),
        Job::Train(job) => train::train(app, session, &job, cancel),
        Job::Tune(job) => tune::tune(app, session, &job, cancel),
        Job::Evaluate(run) => evaluate(app, session, run, cancel),
        Job::Path { settings, lambdas } => path(app, session, &settings, lambdas, cancel),
    }
}

fn load(app: &App, session: &Session, source: Source, reading: &Reading, upload: Option<&[u8]>) -> Result<(), Refusal> {
    let name = match &source {
        Source::Example(id) => id.clone(),
        Source::Path(path) => path.clone(),
        Source::Upload(name) => name.clone(),
        Source::Painted(_) => "painted".to_owned(),
    };
    let version = {
        let mut inner = session.inner();
        inner.loading = Some(name.clone());
        inner.failed = None;
        inner.data_version += 1;
        inner.data_version
    };
    session.events.send("loading", json!({ "name": name }));
    let data = Data::open(source, reading, upload, app.folder.as_ref(), version, app.threads.count())?;
    set_data(session, Arc::new(data));
    Ok(())
}

/// Makes a data set that of the session.
pub(crate) fn set_data(session: &Session, data: Arc<Data>) {
    let about = data.about.clone();
    {
        let mut inner = session.inner();
        inner.loading = None;
        inner.failed = None;
        if inner.data.as_ref().is_none_or(|old| old.task != data.task || old.name != data.name) {
            inner.settings = Settings { task: data.task.name().to_owned(), ..Settings::default() };
            inner.current = None;
        }
        inner.tune = None;
        inner.path = None;
        inner.data = Some(data);
    }
    session.events.send("data", json!({ "data": about }));
}

/// Left-out predictions of a run.
fn evaluate(app: &App, session: &Session, run: u64, cancel: &Cancel) -> Result<(), Refusal> {
    let trained = session.model(&run.to_string())?;
    let svm = trained.svm.clone().cancel(cancel.clone()).budget(Budget::default());
    let found = app.presenter.evaluate(&svm, &trained.fit, &trained.data.loaded.data)?;
    if cancel.is_requested() {
        return Err(Refusal::new(409, "interrupted", "the evaluation was stopped"));
    }
    let view = evaluation::view(&trained, &found)?;
    if let Some(run) = session.inner().run_mut(run) {
        run.evaluation = Some(Arc::new(view));
    }
    session.events.send("evaluated", json!({ "run": run }));
    Ok(())
}

/// The λ-path of regularised least squares.
fn path(
    app: &App,
    session: &Session,
    settings: &Settings,
    lambdas: Option<Vec<f64>>,
    cancel: &Cancel,
) -> Result<(), Refusal> {
    let data = session.data()?;
    let points = data.points();
    if points.len() > PATH_ROWS {
        let message = format!("the λ-path decomposes a matrix of n² numbers: it is for at most {PATH_ROWS} rows");
        return Err(Refusal::unsupported(message));
    }
    if points.is_empty() {
        return Err(Refusal::no_data());
    }
    let targets: Vec<f64> = match data.classes.len() {
        0 => data.real().ok_or_else(|| Refusal::unsupported("the λ-path needs a target that is a number"))?.to_vec(),
        2 => data.codes.iter().map(|code| if *code == 1 { 1.0 } else { -1.0 }).collect(),
        _ => return Err(Refusal::unsupported("the λ-path is for two classes or a real target")),
    };
    let mut kernel = settings.kernel.kernel()?;
    if kernel.gamma().is_some() {
        kernel = kernel.with_gamma(settings.kernel.gamma.gamma()?.resolve(points, settings.seed)?);
    }
    let control = Control::start(&Budget::default(), app.threads.clone()).with_cancel(cancel.clone());
    let gram = CpuGram::square(kernel, points)?;
    let source = match kernel {
        Kernel::Linear => RidgeSource::Linear(points, &gram),
        _ => RidgeSource::Gram(&gram),
    };
    let usual = || (-12..=6).map(|e| 10f64.powf(f64::from(e) / 2.0)).collect();
    let options = PathOptions { lambdas: lambdas.unwrap_or_else(usual), bias: settings.bias, ..PathOptions::default() };
    let weights = data.loaded.data.weights.as_deref();
    let found = ridge::path(source, &targets, 1, weights, &options, &control, &mut Silent)?;
    let object = |p: &PathPoint| {
        json!({
            "lambda": p.lambda,
            "C": 1.0 / p.lambda,
            "loo_mse": p.loo_mse,
            "train_mse": p.train_mse,
            "degrees_of_freedom": p.degrees_of_freedom,
        })
    };
    let view: Value = json!({
        "path": found.points.iter().map(object).collect::<Vec<_>>(),
        "best": found.best.map(|at| object(&found.points[at])),
        "status": found.status,
        "seconds": control.seconds(),
        "kernel": kernel,
        "data_version": data.version,
    });
    session.inner().path = Some(view);
    session.events.send("path", json!({}));
    Ok(())
}
