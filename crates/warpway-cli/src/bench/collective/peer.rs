//! A peer's program, which takes orders on its standard input: benchmarks/README.md says which.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::case::{Case, Subject};
use super::programs::Rival;
use super::turns::{Contestant, Opened};

/// An answer comes within this time: the longest is several calls on the largest buffers, refilled and compared.
const LIMIT: Duration = Duration::from_secs(120);
/// A program that has nothing to read any more ends within this time.
const END: Duration = Duration::from_secs(5);

/// One that runs.
pub(super) struct Peer<'a> {
    name: &'static str,
    subject: &'a Subject,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

/// Any answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    program: Option<String>,
    unsupported: Option<String>,
    place: Option<String>,
    algorithm: Option<String>,
    wrong: Option<u64>,
    us: Option<f64>,
}

impl<'a> Peer<'a> {
    /// Starts the program with as many ranks as the subject has.
    pub(super) fn start(rival: Rival, subject: &'a Subject) -> anyhow::Result<Self> {
        let mut command = rival.command(subject.n_ranks)?;
        // Ours, or its launcher's, which would take this process for a rank of another job.
        for (variable, _) in std::env::vars_os() {
            if ["OMPI_", "PMIX_", "PMI_"].iter().any(|prefix| variable.to_string_lossy().starts_with(prefix))
            {
                command.env_remove(variable);
            }
        }
        Self::run(rival.name(), command, subject)
    }

    fn run(name: &'static str, mut command: Command, subject: &'a Subject) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{name}: cannot start {command:?}"))?;
        let orders = child.stdin.take();
        let answers = read_lines(child.stdout.take().context("no standard output")?)?;
        Ok(Self { name, subject, child, orders, answers })
    }

    fn ask(&mut self, order: &str) -> anyhow::Result<Answer> {
        let orders = self.orders.as_mut().context("it has ended")?;
        // A program that has gone says why on standard error, which is also ours.
        writeln!(orders, "{order}").and_then(|()| orders.flush()).with_context(|| self.fate(order))?;
        match self.answers.recv_timeout(LIMIT) {
            Ok(line) => serde_json::from_str(&line).with_context(|| format!("`{order}`: answered `{line}`")),
            Err(RecvTimeoutError::Timeout) => bail!("`{order}`: no answer within {} s", LIMIT.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!(self.fate(order)),
        }
    }

    fn fate(&mut self, order: &str) -> String {
        let status = wait(&mut self.child, END);
        status.map_or_else(
            || format!("`{order}`: it hangs"),
            |status| format!("`{order}`: it ended with {status}"),
        )
    }
}

/// Its lines, read on a thread so that a wait for one can end; the thread ends with the program.
fn read_lines(output: ChildStdout) -> anyhow::Result<Receiver<String>> {
    let (send, receive) = channel();
    let read = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with('{') && send.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("peer-answers".into()).spawn(read).context("starting a thread")?;
    Ok(receive)
}

fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

impl Contestant for Peer<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn open(&mut self, case: Case) -> anyhow::Result<Opened> {
        let Subject { operation, data_type, op, root, .. } = self.subject;
        let place = if case.in_place { "in" } else { "out" };
        let op = if operation.reduces() { op.to_string() } else { "sum".to_owned() };
        let answer = self.ask(&format!("open {operation} {data_type} {op} {place} {} {root}", case.bytes))?;
        if let Some(why) = answer.unsupported {
            return Ok(Opened::Unsupported(why));
        }
        let wrong = answer.wrong.context("the answer says nothing of wrong elements")?;
        Ok(Opened::Ready {
            in_place: answer.place.as_deref() == Some("in"),
            wrong,
            algorithm: [answer.program, answer.algorithm]
                .into_iter()
                .flatten()
                .reduce(|a, b| format!("{a}, {b}")),
        })
    }

    fn batch(&mut self, warm: u64, calls: u64) -> anyhow::Result<f64> {
        let us = self.ask(&format!("batch {warm} {calls}"))?.us.context("the answer has no time")?;
        ensure!(us.is_finite() && us > 0.0, "{us} µs is no time");
        Ok(us * 1e-6)
    }

    fn close(&mut self) -> anyhow::Result<u64> {
        self.ask("close")?.wrong.context("the answer says nothing of wrong elements")
    }
}

impl Drop for Peer<'_> {
    /// It ends when it has nothing to read any more; if it does not, it is made to.
    fn drop(&mut self) {
        self.orders = None;
        if wait(&mut self.child, END).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use warpway::DataType;
    use warpway::plan::ReduceOp;
    use warpway_collectives::Function;

    use super::super::case::Operation;
    use super::*;

    const SUBJECT: Subject = Subject {
        operation: Operation::Collective(Function::AllGather),
        data_type: DataType::Bfloat16,
        op: ReduceOp::Sum,
        root: 0,
        n_ranks: 2,
    };

    fn shell(script: &str) -> Peer<'static> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Peer::run("peer", command, &SUBJECT).unwrap()
    }

    #[test]
    fn orders_and_answers() {
        let mut peer = shell(
            r#"read line; [ "$line" = "open all_gather bfloat16 sum out 64 0" ] || exit 3
            echo a log; echo '{"program":"P 1","place":"in","wrong":2,"us":3}'
            read line; [ "$line" = "batch 1 7" ] || exit 4; echo '{"us":2.5}'
            read line; [ "$line" = close ] || exit 5; echo '{"wrong":1}'
            read line; echo '{"unsupported":"never heard of it"}'"#,
        );
        let case = Case { bytes: 64, in_place: false };
        let ready = Opened::Ready { in_place: true, wrong: 2, algorithm: Some("P 1".into()) };
        assert_eq!(peer.open(case).unwrap(), ready);
        assert!((peer.batch(1, 7).unwrap() - 2.5e-6).abs() < 1e-12);
        assert_eq!(peer.close().unwrap(), 1);
        assert_eq!(peer.open(case).unwrap(), Opened::Unsupported("never heard of it".into()));
    }

    #[test]
    fn a_peer_that_ends_or_talks_nonsense_is_an_error() {
        let error = shell("read line; exit 7").batch(1, 1).unwrap_err().to_string();
        assert!(error.contains("batch 1 1") && error.contains("exit status: 7"), "{error}");
        let error = shell("read line; echo '{\"us\":-1}'; cat").batch(1, 1).unwrap_err().to_string();
        assert!(error.contains("no time"), "{error}");
        let error = shell("read line; echo '{nonsense'; cat").close().unwrap_err().to_string();
        assert!(error.contains("{nonsense"), "{error}");
    }
}
