//! The routes below `/api/`.
//!
//! Handlers are plain functions on threads of their own; the thread that serves requests only passes bytes on.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Query as QueryPart, RawPathParams, State};
use axum::routing::{MethodFilter, on};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Refusal, ok, respond};
use crate::copy;
use crate::data::{EDITABLE_ROWS, Reading, Source};
use crate::edit::{self, Edits};
use crate::engine;
use crate::examples::EXAMPLES;
use crate::loss;
use crate::presenter::ReportRequest;
use crate::session::{
    App, Job, KEPT_RUNS, LISTED_MACHINES, MOST_SESSIONS, Mode, Session, Shared, Start, TrainJob, TuneJob, lock,
};
use crate::settings::{KERNELS, Settings};
use crate::stream::events;
use crate::tour;
use crate::views::{Query, margins, plane, sample};

/// Largest upload.
const UPLOAD_BYTES: usize = 256 << 20;
/// Largest JSON body.
const JSON_BYTES: usize = 1 << 20;
/// Most cells of a search.
const MOST_CELLS: usize = 400;
/// Seconds that each fold of a report may train.
const REPORT_SECONDS: f64 = 20.0;

/// A request as handlers see it.
struct Call {
    parts: Vec<(String, String)>,
    query: Query,
    body: Bytes,
}

impl Call {
    /// A part of the path.
    fn part(&self, name: &str) -> &str {
        self.parts.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The body as JSON; an empty one is an empty object.
    fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let bytes: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(bytes).map_err(|error| Refusal::request(format!("the request cannot be read: {error}")))
    }

    fn session(&self, app: &App) -> Result<Arc<Session>, Refusal> {
        app.session(self.part("session"))
    }
}

type Handler = fn(&Shared, &Call) -> Outcome;

/// A route, for documentation and tests.
#[derive(Debug, Clone, Copy)]
pub struct RouteInfo {
    /// Its path; parts in braces are names.
    pub path: &'static str,
    /// Its method.
    pub method: &'static str,
}

/// What a route does.
#[derive(Clone, Copy)]
enum Does {
    Answers(Handler),
    /// The same, with a large body.
    Takes(Handler),
    Streams,
}

macro_rules! routes {
    ($($method:ident $path:literal => $does:expr),* $(,)?) => {
        /// Every route that needs the token.
        pub const ROUTES: &[RouteInfo] = &[$(RouteInfo { path: $path, method: stringify!($method) }),*];
        const DOES: &[(MethodFilter, Does)] = &[$((MethodFilter::$method, $does)),*];
    };
}

routes! {
    GET "/api/hello" => Does::Answers(hello),
    GET "/api/files" => Does::Answers(files),
    POST "/api/loss" => Does::Answers(loss_curves),
    GET "/api/tour" => Does::Answers(tour_stations),
    GET "/api/sessions" => Does::Answers(sessions),
    POST "/api/sessions" => Does::Answers(open_session),
    GET "/api/sessions/{session}" => Does::Answers(state),
    DELETE "/api/sessions/{session}" => Does::Answers(close_session),
    GET "/api/sessions/{session}/events" => Does::Streams,
    GET "/api/sessions/{session}/data" => Does::Answers(save_data),
    POST "/api/sessions/{session}/data" => Does::Answers(open_data),
    POST "/api/sessions/{session}/upload" => Does::Takes(upload),
    POST "/api/sessions/{session}/edit" => Does::Answers(edit_data),
    GET "/api/sessions/{session}/rows/{row}" => Does::Answers(row),
    GET "/api/sessions/{session}/plane" => Does::Answers(plane_view),
    POST "/api/sessions/{session}/train" => Does::Answers(train),
    POST "/api/sessions/{session}/stop" => Does::Answers(stop),
    POST "/api/sessions/{session}/copy" => Does::Answers(copy_settings),
    GET "/api/sessions/{session}/tune" => Does::Answers(tune_state),
    POST "/api/sessions/{session}/tune" => Does::Answers(tune),
    GET "/api/sessions/{session}/path" => Does::Answers(path_state),
    POST "/api/sessions/{session}/path" => Does::Answers(path),
    GET "/api/sessions/{session}/runs" => Does::Answers(runs),
    GET "/api/sessions/{session}/runs/{run}" => Does::Answers(run),
    GET "/api/sessions/{session}/runs/{run}/trace" => Does::Answers(trace),
    GET "/api/sessions/{session}/runs/{run}/margins" => Does::Answers(margins_view),
    GET "/api/sessions/{session}/runs/{run}/evaluation" => Does::Answers(evaluation),
    POST "/api/sessions/{session}/runs/{run}/evaluate" => Does::Answers(evaluate),
    GET "/api/sessions/{session}/runs/{run}/model" => Does::Answers(model_file),
    GET "/api/sessions/{session}/runs/{run}/report" => Does::Answers(report),
    POST "/api/sessions/{session}/runs/{run}/verify" => Does::Answers(verify),
}

/// The largest body of a request to this path.
pub(crate) fn body_limit(path: &str) -> usize {
    if path.ends_with("/upload") { UPLOAD_BYTES } else { JSON_BYTES }
}

/// The answer to a body that is too large.
pub(crate) fn too_large(limit: usize) -> Refusal {
    Refusal::new(413, "too_large", format!("the request is larger than {limit} bytes"))
}

/// All routes.
pub(crate) fn router(app: Shared) -> Router {
    let mut router = Router::new();
    for (info, (method, does)) in ROUTES.iter().zip(DOES) {
        let (limit, handler) = match *does {
            Does::Streams => {
                router = router.route(info.path, on(*method, events));
                continue;
            }
            Does::Answers(handler) => (JSON_BYTES, handler),
            Does::Takes(handler) => (UPLOAD_BYTES, handler),
        };
        let call = move |State(app): State<Shared>,
                         parts: RawPathParams,
                         QueryPart(query): QueryPart<HashMap<String, String>>,
                         body: Result<Bytes, BytesRejection>| async move {
            let Ok(body) = body else {
                return respond(Err(too_large(limit)));
            };
            let parts = parts.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            let call = Call { parts, query: Query(query), body };
            let done = tokio::task::spawn_blocking(move || handler(&app, &call)).await;
            respond(done.unwrap_or_else(|_| {
                Err(Refusal::new(500, "internal", "a computation failed unexpectedly: this is a bug"))
            }))
        };
        router = router.route(info.path, on(*method, call).layer(DefaultBodyLimit::max(limit)));
    }
    let nothing = || async { respond(Err(Refusal::not_found("there is nothing at this address"))) };
    let method = || async { respond(Err(Refusal::new(405, "bad_request", "this address has no such method"))) };
    let guard = axum::middleware::from_fn_with_state(app.clone(), crate::guard::guard);
    // The guard is added last: it is the outermost layer, around the fallbacks too.
    router.fallback(nothing).method_not_allowed_fallback(method).layer(guard).with_state(app)
}

fn hello(app: &Shared, _: &Call) -> Outcome {
    let kernels: Vec<Value> = KERNELS
        .iter()
        .map(|(name, parameters, formula)| json!({ "name": name, "parameters": parameters, "formula": formula }))
        .collect();
    let solvers: Vec<&str> = margrave::SolverName::ALL.iter().map(|(name, _)| *name).collect();
    let numbers = ["mse", "rmse", "mae", "r2", "explained-variance"];
    let classes =
        ["accuracy", "balanced-accuracy", "f1", "f1-macro", "roc-auc", "average-precision", "log-loss", "brier", "mcc"];
    ok(json!({
        "name": "margrave",
        "version": env!("CARGO_PKG_VERSION"),
        "threads": app.threads.count(),
        "limits": {
            "upload_bytes": UPLOAD_BYTES, "json_bytes": JSON_BYTES, "editable_rows": EDITABLE_ROWS,
            "grid": plane::MOST_GRID, "points": plane::MOST_POINTS, "runs": KEPT_RUNS, "sessions": MOST_SESSIONS,
            "idle_seconds": app.idle_seconds,
        },
        "folder": { "open": app.folder.is_some(), "name": app.folder.as_ref().map(|folder| folder.name()) },
        "start": app.start.as_ref().map(|path| json!({ "path": path })),
        "examples": EXAMPLES.iter().map(|example| example.json()).collect::<Vec<_>>(),
        "tasks": ["classify", "regress", "novelty"],
        "kernels": kernels,
        "losses": loss::list(),
        "solvers": solvers,
        "metrics": { "classify": classes, "regress": numbers },
    }))
}

fn files(app: &Shared, call: &Call) -> Outcome {
    let folder = app.folder.as_ref().ok_or_else(|| {
        Refusal::not_found("no folder is open").hint("start with --folder DIR, or drop a file on the page")
    })?;
    ok(folder.list(call.query.text("path").unwrap_or(""))?)
}

fn loss_curves(_: &Shared, call: &Call) -> Outcome {
    ok(loss::curves(&call.json()?)?)
}

fn tour_stations(_: &Shared, _: &Call) -> Outcome {
    ok(tour::stations())
}

fn sessions(app: &Shared, _: &Call) -> Outcome {
    ok(json!({ "sessions": app.sessions().iter().map(|session| session.summary()).collect::<Vec<_>>() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenRequest {
    source: Option<Source>,
    #[serde(default)]
    options: Reading,
}

fn open_session(app: &Shared, call: &Call) -> Outcome {
    let request: OpenRequest = call.json()?;
    let source = request.source.or_else(|| app.start.clone().map(Source::Path));
    let session = app.open()?;
    if let Some(source) = source {
        submit_load(&session, source, request.options, None);
    }
    Ok(Answer::Json(201, session.state()))
}

/// Hands a load to the engine; from now on the session says that it is loading.
fn submit_load(session: &Session, source: Source, reading: Reading, upload: Option<Bytes>) {
    let name = match &source {
        Source::Example(name) | Source::Path(name) | Source::Upload(name) => name.clone(),
        Source::Painted(_) => "painted".to_owned(),
    };
    let mut inner = session.inner();
    inner.loading = Some(name);
    inner.failed = None;
    session.submit_locked(&mut inner, Job::Load { source, reading: Box::new(reading), upload });
}

fn state(app: &Shared, call: &Call) -> Outcome {
    ok(call.session(app)?.state())
}

fn close_session(app: &Shared, call: &Call) -> Outcome {
    app.close(call.part("session"))?;
    Ok(Answer::Empty(204))
}

fn open_data(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let request: OpenRequest = call.json()?;
    let source = request.source.ok_or_else(|| Refusal::request("a source is needed"))?;
    if let Source::Path(path) = &source
        && let Some(folder) = &app.folder
    {
        folder.resolve(path)?;
    }
    submit_load(&session, source, request.options, None);
    Ok(Answer::Json(202, json!({ "loading": true })))
}

fn upload(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let name = call.query.text("name").unwrap_or("upload");
    // The name only helps to tell the format: it never becomes a path.
    let name: String = name.rsplit(['/', '\\']).next().unwrap_or("upload").chars().take(200).collect();
    let text = |key: &str| call.query.text(key).filter(|text| !text.is_empty()).map(str::to_owned);
    let column = |key: &str| text(key).map(crate::data::ColumnName::Name);
    let reading = Reading {
        task: text("task"),
        target: column("target"),
        weights: column("weights"),
        format: text("format"),
        missing: text("missing"),
        ..Reading::default()
    };
    submit_load(&session, Source::Upload(name), reading, Some(call.body.clone()));
    Ok(Answer::Json(202, json!({ "loading": true })))
}

/// The data as a file.
fn save_data(app: &Shared, call: &Call) -> Outcome {
    let data = call.session(app)?.data()?;
    let mut bytes = Vec::new();
    margrave::io::write_csv(&data.loaded.data, &mut bytes)
        .map_err(|error| Refusal::new(500, "internal", format!("the data could not be written: {error}")))?;
    let stem = data.name.rsplit('/').next().unwrap_or("data").split('.').next().unwrap_or("data").to_owned();
    Ok(Answer::File("text/csv; charset=utf-8", format!("{stem}.csv"), bytes))
}

fn edit_data(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let edits: Edits = call.json()?;
    let old = session.data()?;
    if edits.version != old.version {
        return Err(Refusal::new(409, "busy", format!("the data is at version {}", old.version)));
    }
    let version = {
        let mut inner = session.inner();
        inner.data_version += 1;
        inner.data_version
    };
    let data = Arc::new(edit::apply(&old, &edits, version)?);
    if session.inner().data.as_ref().is_none_or(|now| now.version != old.version) {
        return Err(Refusal::new(409, "busy", "the data has changed meanwhile"));
    }
    engine::set_data(&session, data.clone());
    ok(data.about.clone())
}

fn row(app: &Shared, call: &Call) -> Outcome {
    sample::view(app, &*call.session(app)?, call.part("row"), &call.query)
}

fn plane_view(app: &Shared, call: &Call) -> Outcome {
    plane::view(app, &*call.session(app)?, &call.query)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainRequest {
    settings: Option<Value>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    start: Option<Value>,
    #[serde(default)]
    steps: Option<u64>,
    #[serde(default)]
    live: Option<bool>,
    #[serde(default)]
    part_seconds: Option<f64>,
    /// The run to go on with; the current one if none is named.
    #[serde(default)]
    run: Option<u64>,
}

fn train(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let request: TrainRequest = call.json()?;
    let data = session.data()?;
    let settings = Settings::read(request.settings.as_ref(), &data)?;
    let mode = match request.mode.as_deref().unwrap_or("play") {
        "play" => Mode::Play,
        "step" => Mode::Step,
        "resume" => Mode::Resume,
        "polish" => Mode::Polish,
        other => return Err(Refusal::request(format!("mode = {other:?}: there are play, step, resume and polish"))),
    };
    let start = match &request.start {
        None | Some(Value::Null) => Start::Warm,
        Some(Value::String(text)) if text == "warm" => Start::Warm,
        Some(Value::String(text)) if text == "cold" => Start::Cold,
        Some(value) => match value["run"].as_u64() {
            Some(run) => Start::Run(run),
            None => return Err(Refusal::request("start must be \"warm\", \"cold\" or {\"run\": NUMBER}")),
        },
    };
    // Mistakes are told at once rather than by an event.
    let cancel = margrave::Cancel::new();
    settings.svm(&data, &app.threads, &cancel)?;
    let mut inner = session.inner();
    let known = request.run.or(inner.current);
    let continues = match mode {
        Mode::Play => None,
        _ => inner.runs.iter().find(|run| {
            Some(run.id) == known
                && run.data_version == data.version
                && run.model.is_some()
                && same_problem(&run.settings, &settings)
        }),
    };
    let run = continues.map(|run| run.id);
    let job = TrainJob {
        run: run.unwrap_or_else(|| Session::number_run(&mut inner)),
        continues: run.is_some(),
        settings,
        mode,
        // A first step is a step from nothing.
        start: if mode == Mode::Step && request.start.is_none() { Start::Cold } else { start },
        steps: request.steps.unwrap_or(1).clamp(1, 1_000_000),
        live: request.live.unwrap_or(true),
        part_seconds: request.part_seconds.filter(|seconds| seconds.is_finite()).map(|s| s.clamp(0.01, 60.0)),
    };
    let answer = json!({ "run": job.run });
    session.submit_locked(&mut inner, Job::Train(Box::new(job)));
    Ok(Answer::Json(202, answer))
}

/// Whether two settings differ at most in when to stop.
fn same_problem(a: &Settings, b: &Settings) -> bool {
    let plain = |s: &Settings| Settings { tol: None, gap: None, max_seconds: None, max_iter: None, ..s.clone() };
    plain(a) == plain(b)
}

fn stop(app: &Shared, call: &Call) -> Outcome {
    call.session(app)?.stop();
    Ok(Answer::Json(202, json!({ "stopping": true })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyRequest {
    settings: Option<Value>,
}

fn copy_settings(app: &Shared, call: &Call) -> Outcome {
    let data = call.session(app)?.data()?;
    let request: CopyRequest = call.json()?;
    ok(copy::both(&Settings::read(request.settings.as_ref(), &data)?, &data))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TuneRequest {
    settings: Option<Value>,
    grid: serde_json::Map<String, Value>,
    #[serde(default)]
    folds: Option<usize>,
    #[serde(default)]
    score: Option<String>,
}

fn tune(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let request: TuneRequest = call.json()?;
    let data = session.data()?;
    let settings = Settings::read(request.settings.as_ref(), &data)?;
    let mut axes = Vec::new();
    for (name, values) in &request.grid {
        if !["C", "gamma", "epsilon", "nu", "lambda"].contains(&name.as_str()) {
            return Err(Refusal::request(format!("grid: {name:?} is not one of C, gamma, epsilon, nu, lambda")));
        }
        let numbers: Option<Vec<f64>> = values.as_array().map(|list| list.iter().filter_map(Value::as_f64).collect());
        let numbers = numbers.filter(|list| !list.is_empty() && list.iter().all(|v| v.is_finite()));
        let numbers = numbers.ok_or_else(|| Refusal::request(format!("grid: {name} needs a list of numbers")))?;
        axes.push((name.clone(), numbers));
    }
    // JSON objects have no order: C is drawn along x where it is searched over.
    axes.sort_by_key(|(name, _)| ["C", "lambda", "nu", "epsilon", "gamma"].iter().position(|known| known == name));
    let cells: usize = axes.iter().map(|(_, values)| values.len()).product();
    if axes.is_empty() || axes.len() > 2 || cells > MOST_CELLS {
        return Err(Refusal::request(format!("a grid has one or two axes and at most {MOST_CELLS} cells")));
    }
    let folds = request.folds.unwrap_or(5);
    if !(2..=50).contains(&folds) {
        return Err(Refusal::request("folds must be between 2 and 50"));
    }
    if let Some(score) = &request.score {
        score.parse::<margrave::engine::metrics::Metric>()?;
    }
    settings.svm(&data, &app.threads, &margrave::Cancel::new())?;
    let number = session.number_tune();
    let job = TuneJob { tune: number, settings, axes, folds, score: request.score };
    session.submit(Job::Tune(Box::new(job)));
    Ok(Answer::Json(202, json!({ "tune": number })))
}

fn tune_state(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let found = session.inner().tune.clone();
    ok(found.ok_or_else(|| Refusal::not_found("nothing has been tuned on this data"))?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathRequest {
    settings: Option<Value>,
    #[serde(default)]
    lambdas: Option<Vec<f64>>,
}

fn path(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let request: PathRequest = call.json()?;
    let data = session.data()?;
    let settings = Settings::read(request.settings.as_ref(), &data)?;
    if request.lambdas.as_ref().is_some_and(|list| list.is_empty() || list.len() > 1000) {
        return Err(Refusal::request("lambdas must be a list of 1 to 1000 numbers"));
    }
    session.submit(Job::Path { settings: Box::new(settings), lambdas: request.lambdas });
    Ok(Answer::Json(202, json!({ "path": true })))
}

fn path_state(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let found = session.inner().path.clone();
    ok(found.ok_or_else(|| Refusal::not_found("there is no λ-path of this data yet"))?)
}

fn runs(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let inner = session.inner();
    ok(json!({ "runs": inner.runs.iter().rev().map(|run| run.json(LISTED_MACHINES)).collect::<Vec<_>>() }))
}

fn run(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let inner = session.inner();
    let wanted = call.part("run");
    match wanted.parse().is_ok_and(|id| inner.is_waiting(id)) {
        true => ok(json!({ "run": wanted.parse::<u64>().ok(), "status": "running" })),
        false => ok(inner.find(wanted)?.json(usize::MAX)),
    }
}

fn trace(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let points = call.query.number::<usize>("points")?.unwrap_or(2000).clamp(10, 20_000);
    let inner = session.inner();
    let run = inner.find(call.part("run"))?;
    let header = json!({
        "run": run.id, "model_version": run.version, "status": run.status, "certified": run.certified,
    });
    let trace = run.trace.clone();
    drop(inner);
    let bytes = lock(&trace).arrays(points, header);
    Ok(Answer::Arrays(bytes))
}

fn margins_view(app: &Shared, call: &Call) -> Outcome {
    let trained = call.session(app)?.model(call.part("run"))?;
    margins::view(app, &trained, &call.query)
}

fn evaluate(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let trained = session.model(call.part("run"))?;
    session.submit(Job::Evaluate(trained.run));
    Ok(Answer::Json(202, json!({ "run": trained.run })))
}

fn evaluation(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let inner = session.inner();
    let run = inner.find(call.part("run"))?;
    let found = run.evaluation.clone();
    ok((*found.ok_or_else(|| Refusal::not_found("this run has not been evaluated"))?).clone())
}

/// Name of the data without folders and endings.
fn stem(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or("model");
    file.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or("model").to_owned()
}

fn model_file(app: &Shared, call: &Call) -> Outcome {
    let trained = call.session(app)?.model(call.part("run"))?;
    let bytes = margrave::io::model::to_bytes(trained.fit.model())?;
    Ok(Answer::File("application/octet-stream", format!("{}.model", stem(&trained.data.name)), bytes))
}

fn report(app: &Shared, call: &Call) -> Outcome {
    let session = call.session(app)?;
    let trained = session.model(call.part("run"))?;
    let (history, settings) = {
        let inner = session.inner();
        let run = inner.find(&trained.run.to_string())?;
        let history = lock(&run.trace).recorder();
        (history, run.settings.clone())
    };
    let command = copy::command(&settings, &trained.data).unwrap_or_else(|refusal| format!("# {}", refusal.message));
    // Its own request to stop: the engine thread may have used up that of the training. Nobody waits for long folds.
    let budget = margrave::Budget { seconds: Some(REPORT_SECONDS), ..margrave::Budget::default() };
    let svm = trained.svm.clone().cancel(margrave::Cancel::new()).threads(app.view_threads.clone()).budget(budget);
    let page = app.presenter.report(&ReportRequest {
        svm: &svm,
        fit: &trained.fit,
        loaded: &trained.data.loaded,
        name: &trained.data.name,
        history: &history,
        command: &command,
    })?;
    Ok(Answer::File("text/html; charset=utf-8", format!("{}.html", stem(&trained.data.name)), page.into_bytes()))
}

fn verify(app: &Shared, call: &Call) -> Outcome {
    let trained = call.session(app)?.model(call.part("run"))?;
    let bytes = margrave::io::model::to_bytes(trained.fit.model())?;
    let model = margrave::io::model::from_bytes(&bytes, "the model of this run")?;
    let control = margrave::Control::unlimited(app.view_threads.clone());
    let found = margrave::verify(&model, &trained.data.loaded.data, None, &control)?;
    ok(app.presenter.certificates(&found))
}
