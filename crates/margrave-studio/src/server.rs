//! The server: a port of 127.0.0.1, and when it ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margrave::{Cancel, Threads};

use crate::folder::Folder;
use crate::presenter::Presenter;
use crate::routes::router;
use crate::session::{App, AppParts, Shared, random_hex};

/// Bytes of the token: 128 bits.
const TOKEN_BYTES: usize = 16;
/// How often the end is considered.
const TICK: Duration = Duration::from_millis(100);
/// Time for open answers to be finished at the end.
const GRACE: Duration = Duration::from_millis(500);

/// What to serve.
#[derive(Debug)]
pub struct Options {
    /// A data file to open first.
    pub data: Option<PathBuf>,
    /// The folder whose files may be opened; that of `data` if there is none.
    pub folder: Option<PathBuf>,
    /// The port; 0 for any free one.
    pub port: u16,
    /// End after this long without a request, an open page or a running training.
    pub idle: Duration,
    /// Threads of trainings.
    pub threads: Threads,
    /// Ends the server.
    pub stop: Cancel,
}

/// Why a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// Nobody asked for anything.
    Idle,
}

/// A server that is bound to its port.
pub struct Server {
    app: Shared,
    listener: TcpListener,
    token: String,
    idle: Duration,
    stop: Cancel,
}

/// The folder to open and the name of the data below it.
fn place(data: Option<&Path>, folder: Option<&Path>) -> io::Result<(Option<Folder>, Option<String>)> {
    let Some(data) = data else {
        return Ok((folder.map(Folder::open).transpose()?, None));
    };
    let file = data.canonicalize()?;
    let parent = file.parent().unwrap_or(Path::new("/"));
    let root = folder.unwrap_or(parent).canonicalize()?;
    let Ok(below) = file.strip_prefix(&root) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is not below the opened folder"));
    };
    let name = below.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
    Ok((Some(Folder::open(&root)?), Some(name)))
}

impl Server {
    /// Opens the port.
    pub fn bind(options: Options, presenter: Arc<dyn Presenter>) -> io::Result<Self> {
        let (folder, start) = place(options.data.as_deref(), options.folder.as_deref())?;
        if let (Some(folder), Some(start)) = (&folder, &start) {
            folder.resolve(start).map_err(|refusal| io::Error::other(refusal.message))?;
        }
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port)))?;
        listener.set_nonblocking(true)?;
        let token = random_hex(TOKEN_BYTES).map_err(|refusal| io::Error::other(refusal.message))?;
        let app = App::new(AppParts {
            token: token.clone(),
            port: listener.local_addr()?.port(),
            threads: options.threads,
            folder,
            start,
            presenter,
            idle_seconds: options.idle.as_secs(),
        });
        Ok(Self { app: Arc::new(app), listener, token, idle: options.idle, stop: options.stop })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().map_or(0, |address| address.port())
    }

    /// The address to open, with the token in its fragment, which browsers do not send.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/#token={}", self.port(), self.token)
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Serves until the end. Blocks.
    pub fn run(self) -> io::Result<End> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(64).build()?;
        let app = self.app.clone();
        let end = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let service = router(self.app.clone());
            let serving = tokio::spawn(async move { axum::serve(listener, service).await });
            let end = loop {
                tokio::time::sleep(TICK).await;
                if self.stop.is_requested() {
                    break End::Stopped;
                }
                if self.app.idle() >= self.idle.as_secs_f64() {
                    break End::Idle;
                }
                if serving.is_finished() {
                    return Err(io::Error::other("the server ended by itself"));
                }
            };
            self.app.close_all();
            tokio::time::sleep(GRACE).await;
            serving.abort();
            Ok(end)
        });
        app.close_all();
        // A view that is still computed does not hold the program up.
        runtime.shutdown_background();
        end
    }
}
