//! What happens to a job, as a state machine: it is told what happened and when, and answers with what to do.

use std::{
    mem,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::report::{Cause, Ending, Event, signal_exit_code};

/// How long processes that ranks left behind may finish by themselves (the `tee` of a process substitution,
/// say) after all ranks ended well.
const LINGER: Duration = Duration::from_secs(1);
/// How long the end of processes that got SIGKILL is awaited. Longer means that the kernel holds them.
const REAP: Duration = Duration::from_secs(5);
const TIMED_OUT: u8 = 124;

/// What the event loop is to do.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Send to every rank's process group and to what left it.
    Signal(Signal),
    /// Stop the launcher itself until it is continued.
    Pause,
    /// Tell the user.
    Report(Event),
}

#[derive(Debug, PartialEq)]
enum Phase {
    Running,
    /// A rank failed; the others may say what they saw of it.
    Failing {
        stop_at: Instant,
    },
    /// All ranks ended well.
    Lingering {
        until: Instant,
    },
    /// Everybody was asked to end.
    Ending {
        kill_at: Instant,
    },
    Killed {
        give_up_at: Instant,
    },
    Over,
}

/// How long a job may do what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The whole job; zero is no limit.
    pub(super) timeout: Duration,
    /// Ranks may end by themselves after another one failed.
    pub(super) wait: Duration,
    /// From SIGTERM to SIGKILL.
    pub(super) grace: Duration,
}

/// One job from its start to its end.
pub(super) struct Job {
    pids: Vec<i32>,
    endings: Vec<Option<Ending>>,
    limits: Limits,
    timeout_at: Option<Instant>,
    begin: Instant,
    phase: Phase,
    cause: Option<Cause>,
    actions: Vec<Action>,
}

impl Job {
    /// A job whose ranks have just been started.
    pub(super) fn new(pids: Vec<i32>, now: Instant, limits: Limits) -> Self {
        let actions = (0u32..)
            .zip(&pids)
            .map(|(rank, pid)| Action::Report(Event::Started { rank, pid: *pid }))
            .collect();
        Self {
            endings: vec![None; pids.len()],
            pids,
            limits,
            timeout_at: if limits.timeout.is_zero() { None } else { now.checked_add(limits.timeout) },
            begin: now,
            phase: Phase::Running,
            cause: None,
            actions,
        }
    }

    /// What is to be done now, in order.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        mem::take(&mut self.actions)
    }

    /// Ranks that have not ended.
    pub(super) fn running(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.endings).filter(|(_, ending)| ending.is_none()).map(|(rank, _)| rank)
    }

    /// Whether all ranks have ended, so that what still runs was left behind.
    pub(super) fn all_ended(&self) -> bool {
        self.endings.iter().all(Option::is_some)
    }

    /// Whether nothing of the job runs any more.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the job does not just run to its end.
    pub(super) fn is_disturbed(&self) -> bool {
        self.cause.is_some()
    }

    /// When [`on_time`](Self::on_time) must be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.timeout_at,
            Phase::Failing { stop_at: at }
            | Phase::Lingering { until: at }
            | Phase::Ending { kill_at: at }
            | Phase::Killed { give_up_at: at } => Some(at),
            Phase::Over => None,
        }
    }

    /// A rank could not be started; those after it were not tried.
    pub(super) fn on_start_failure(&mut self, now: Instant, exit_code: u8, reason: String) {
        let rank = u32::try_from(self.pids.len()).unwrap_or(u32::MAX);
        self.end(now, Cause::Start { rank, exit_code, reason }, Signal::TERM);
    }

    /// Ranks ended, found out together. Of several failures the first is not known: a rank that a signal killed
    /// is rather the cause than one that noticed and gave up.
    pub(super) fn on_ended(&mut self, now: Instant, ended: &[(u32, Ending)]) {
        let mut first: Option<Cause> = None;
        for &(rank, ending) in ended {
            let index = rank as usize;
            let (Some(slot), Some(&pid)) = (self.endings.get_mut(index), self.pids.get(index)) else {
                continue;
            };
            *slot = Some(ending);
            self.actions.push(Action::Report(Event::Ended { rank, pid, ending }));
            let better = match &first {
                None => true,
                Some(Cause::Rank { ending: Ending::Code(_), .. }) => matches!(ending, Ending::Signal(_)),
                Some(_) => false,
            };
            if !ending.is_success() && better {
                first = Some(Cause::Rank { rank, pid, ending });
            }
        }
        if let Some(cause) = first
            && self.phase == Phase::Running
        {
            self.cause = Some(cause);
            self.phase = Phase::Failing { stop_at: now + self.limits.wait };
        }
        match self.phase {
            Phase::Running if self.all_ended() => self.phase = Phase::Lingering { until: now + LINGER },
            Phase::Failing { stop_at } if self.all_ended() || now >= stop_at => self.stop(now, Signal::TERM),
            _ => {}
        }
    }

    /// After all ranks ended: the processes of the job that still run.
    pub(super) fn on_leftovers(&mut self, now: Instant, pids: &[i32]) {
        if !self.all_ended() || self.is_over() {
            return;
        }
        match self.phase {
            _ if pids.is_empty() => self.phase = Phase::Over,
            Phase::Lingering { until } if now >= until => {
                self.actions.push(Action::Report(Event::Leftovers { pids: pids.to_vec() }));
                self.ask_to_end(now, Signal::TERM);
            }
            _ => self.on_time(now),
        }
    }

    /// The launcher got a signal.
    pub(super) fn on_signal(&mut self, now: Instant, signal: Signal) {
        let ends = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal);
        match self.phase {
            Phase::Running | Phase::Lingering { .. } if ends => {
                self.end(now, Cause::Signal(signal.as_raw()), signal);
            }
            Phase::Failing { .. } if ends => self.stop(now, signal),
            // Somebody at a terminal has no patience left.
            Phase::Ending { .. } if signal == Signal::INT => self.kill(now),
            Phase::Over => {}
            _ => self.actions.push(Action::Signal(signal)),
        }
        if signal == Signal::TSTP {
            self.actions.push(Action::Pause);
        }
    }

    /// Time has passed.
    pub(super) fn on_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Running if self.timeout_at.is_some_and(|at| now >= at) => {
                let cause = Cause::Timeout { seconds: self.limits.timeout.as_secs_f64() };
                self.end(now, cause, Signal::TERM);
            }
            Phase::Failing { stop_at } if now >= stop_at => self.stop(now, Signal::TERM),
            Phase::Ending { kill_at } if now >= kill_at => self.kill(now),
            Phase::Killed { give_up_at } if now >= give_up_at => self.phase = Phase::Over,
            _ => {}
        }
    }

    /// The launcher's exit code, once the job is over.
    pub(super) fn exit_code(&self) -> u8 {
        match &self.cause {
            None => 0,
            Some(Cause::Rank { ending, .. }) => ending.exit_code(),
            Some(Cause::Signal(_)) if self.endings.iter().flatten().all(|ending| ending.is_success()) => 0,
            Some(Cause::Signal(signal)) => signal_exit_code(*signal),
            Some(Cause::Timeout { .. }) => TIMED_OUT,
            Some(Cause::Start { exit_code, .. }) => *exit_code,
        }
    }

    /// The job's last event, for when all of its output has been read.
    pub(super) fn finished(&self, now: Instant) -> Event {
        Event::Finished {
            exit_code: self.exit_code(),
            seconds: (now - self.begin).as_secs_f64(),
            cause: self.cause.clone(),
        }
    }

    fn end(&mut self, now: Instant, cause: Cause, signal: Signal) {
        self.cause = Some(cause);
        self.stop(now, signal);
    }

    /// Ends what still runs, for the cause that is known.
    fn stop(&mut self, now: Instant, signal: Signal) {
        let running = u32::try_from(self.running().count()).unwrap_or(u32::MAX);
        if let Some(cause) = self.cause.clone() {
            self.actions.push(Action::Report(Event::Stopping {
                cause,
                signal: signal.as_raw(),
                running,
                grace_seconds: self.limits.grace.as_secs_f64(),
            }));
        }
        self.ask_to_end(now, signal);
    }

    fn ask_to_end(&mut self, now: Instant, signal: Signal) {
        self.phase = Phase::Ending { kill_at: now + self.limits.grace };
        self.actions.push(Action::Signal(signal));
        // A stopped process acts on it only when it is continued.
        self.actions.push(Action::Signal(Signal::CONT));
    }

    fn kill(&mut self, now: Instant) {
        self.actions.push(Action::Report(Event::Killing { ranks: self.running().collect() }));
        self.actions.push(Action::Signal(Signal::KILL));
        self.phase = Phase::Killed { give_up_at: now + REAP };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const WAIT: Duration = Duration::from_secs(1);

    fn started(n: i32, timeout: Duration) -> (Job, Instant) {
        let now = Instant::now();
        let mut job = Job::new((100..100 + n).collect(), now, Limits { timeout, wait: WAIT, grace: GRACE });
        assert_eq!(job.take_actions().len(), n as usize);
        (job, now)
    }

    fn signals(job: &mut Job) -> Vec<Signal> {
        let only_signals = |action| match action {
            Action::Signal(signal) => Some(signal),
            _ => None,
        };
        job.take_actions().into_iter().filter_map(only_signals).collect()
    }

    #[test]
    fn a_job_that_ends_well_is_left_alone() {
        let (mut job, now) = started(2, Duration::ZERO);
        assert_eq!(job.deadline(), None);
        job.on_ended(now, &[(1, Ending::Code(0))]);
        job.on_leftovers(now, &[]);
        assert!(!job.is_over(), "rank 0 is still running");
        job.on_ended(now, &[(0, Ending::Code(0))]);
        assert!(!job.is_over(), "somebody may have been left behind");
        job.on_leftovers(now, &[]);
        assert!(job.is_over());
        assert_eq!((job.exit_code(), signals(&mut job)), (0, vec![]));
    }

    #[test]
    fn the_first_failure_ends_the_others_and_is_the_outcome() {
        let (mut job, now) = started(3, Duration::ZERO);
        job.on_ended(now, &[(1, Ending::Code(3))]);
        job.on_time(now + WAIT / 2);
        assert_eq!(signals(&mut job), [], "the others may notice it themselves");
        assert_eq!(job.deadline(), Some(now + WAIT));
        job.on_time(now + WAIT);
        assert_eq!(signals(&mut job), [Signal::TERM, Signal::CONT]);
        let kill_at = now + WAIT + GRACE;
        assert_eq!(job.deadline(), Some(kill_at));
        job.on_ended(now + WAIT, &[(0, Ending::Signal(15))]);
        job.on_time(now + WAIT + GRACE / 2);
        assert_eq!(signals(&mut job), []);
        job.on_time(kill_at);
        assert_eq!(
            job.take_actions(),
            [Action::Report(Event::Killing { ranks: vec![2] }), Action::Signal(Signal::KILL)]
        );
        job.on_ended(kill_at, &[(2, Ending::Signal(9))]);
        job.on_leftovers(kill_at, &[]);
        assert!(job.is_over());
        assert_eq!(job.exit_code(), 3);
    }

    #[test]
    fn ranks_that_notice_a_failure_end_by_themselves() {
        let (mut job, now) = started(3, Duration::ZERO);
        job.on_ended(now, &[(2, Ending::Signal(9))]);
        job.on_ended(now + WAIT / 4, &[(0, Ending::Code(42))]);
        assert_eq!(signals(&mut job), []);
        assert_eq!(job.deadline(), Some(now + WAIT), "later failures do not prolong it");
        job.on_ended(now + WAIT / 2, &[(1, Ending::Code(42))]);
        // To what the ranks left behind.
        assert_eq!(signals(&mut job), [Signal::TERM, Signal::CONT]);
        job.on_leftovers(now + WAIT / 2, &[]);
        assert!(job.is_over());
        assert_eq!(job.exit_code(), 137);
    }

    #[test]
    fn a_signal_cuts_the_wait_after_a_failure_short() {
        let (mut job, now) = started(2, Duration::ZERO);
        job.on_ended(now, &[(1, Ending::Code(3))]);
        job.on_signal(now, Signal::INT);
        assert_eq!(signals(&mut job), [Signal::INT, Signal::CONT]);
        assert_eq!(job.deadline(), Some(now + GRACE));
        job.on_ended(now, &[(0, Ending::Signal(2))]);
        assert_eq!(job.exit_code(), 3);
    }

    #[test]
    fn of_failures_seen_together_the_killed_rank_is_the_cause() {
        let (mut job, now) = started(3, Duration::ZERO);
        job.on_ended(now, &[(0, Ending::Code(1)), (1, Ending::Code(0)), (2, Ending::Signal(11))]);
        assert_eq!(job.exit_code(), 139);
    }

    #[test]
    fn signals_are_passed_on_and_those_that_end_have_a_deadline() {
        let (mut job, now) = started(1, Duration::ZERO);
        job.on_signal(now, Signal::USR1);
        job.on_signal(now, Signal::TSTP);
        assert_eq!(
            job.take_actions(),
            [Action::Signal(Signal::USR1), Action::Signal(Signal::TSTP), Action::Pause]
        );
        job.on_signal(now, Signal::INT);
        assert_eq!(signals(&mut job), [Signal::INT, Signal::CONT]);
        job.on_signal(now, Signal::TERM);
        assert_eq!(signals(&mut job), [Signal::TERM], "more of them change nothing");
        assert_eq!(job.deadline(), Some(now + GRACE));
        job.on_signal(now, Signal::INT);
        assert_eq!(signals(&mut job), [Signal::KILL], "a second interrupt does not wait");
        job.on_ended(now, &[(0, Ending::Signal(9))]);
        job.on_leftovers(now, &[]);
        assert_eq!(job.exit_code(), 130);
    }

    #[test]
    fn a_rank_may_end_well_on_a_signal() {
        let (mut job, now) = started(1, Duration::ZERO);
        job.on_signal(now, Signal::TERM);
        job.on_ended(now, &[(0, Ending::Code(0))]);
        assert_eq!(job.exit_code(), 0);
    }

    #[test]
    fn time_runs_out() {
        let (mut job, now) = started(1, Duration::from_secs(7));
        assert_eq!(job.deadline(), Some(now + Duration::from_secs(7)));
        job.on_time(now + Duration::from_secs(6));
        assert_eq!(signals(&mut job), []);
        job.on_time(now + Duration::from_secs(7));
        assert_eq!(signals(&mut job), [Signal::TERM, Signal::CONT]);
        job.on_ended(now, &[(0, Ending::Code(0))]);
        assert_eq!(job.exit_code(), 124, "also if the rank then ends well");
    }

    #[test]
    fn what_is_left_behind_may_finish_is_asked_and_is_killed() {
        let (mut job, now) = started(1, Duration::ZERO);
        job.on_ended(now, &[(0, Ending::Code(0))]);
        job.on_leftovers(now, &[555]);
        assert_eq!(signals(&mut job), []);
        job.on_leftovers(now + LINGER, &[555]);
        assert_eq!(signals(&mut job), [Signal::TERM, Signal::CONT]);
        job.on_leftovers(now + LINGER + GRACE, &[555]);
        assert_eq!(signals(&mut job), [Signal::KILL]);
        job.on_leftovers(now + LINGER + GRACE, &[]);
        assert!(job.is_over());
        assert_eq!(job.exit_code(), 0);
    }

    #[test]
    fn what_cannot_be_killed_is_not_awaited_for_ever() {
        let (mut job, now) = started(1, Duration::ZERO);
        job.on_signal(now, Signal::INT);
        job.on_signal(now, Signal::INT);
        job.on_time(now + REAP);
        assert!(job.is_over());
    }

    #[test]
    fn a_rank_that_cannot_be_started_ends_those_before_it() {
        let (mut job, now) = started(0, Duration::ZERO);
        job.on_start_failure(now, 127, "no such program".into());
        job.on_leftovers(now, &[]);
        assert!(job.is_over());
        assert_eq!(job.exit_code(), 127);
    }
}
