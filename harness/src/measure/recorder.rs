//! What the sampler's process does: ticks on a grid of absolute deadlines, and what it is told in between.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

use super::sampler::{Answer, Command, SAYS, SamplerError, Target, failed};
use super::series::{Sample, Source};
use crate::cgroup::{Cgroup, CgroupError, Usage};
use crate::runtime::lines::Lines;
use crate::runtime::proctree;

/// Samples what stdin names into the new file `out`, or onto standard output when that is `-`, a tick every `period`,
/// until stdin ends.
///
/// # Errors
/// When the file cannot be written or stdin holds nonsense.
pub fn sample(out: &Path, period: Duration) -> Result<(), SamplerError> {
    // Signals of the terminal are the harness's to judge; it ends this process by its stdin.
    let _ = nix::unistd::setsid();
    let out: Box<dyn Write> = if out == Path::new("-") {
        Box::new(std::io::stdout())
    } else {
        Box::new(File::create_new(out).map_err(failed(&format!("create {}", out.display())))?)
    };
    let mut commands = Lines::of_stdin().map_err(failed("keep its stdin"))?;
    let mut recorder = Recorder { targets: Vec::new(), out: BufWriter::new(out) };
    let mut next = Instant::now() + period;
    while commands.open() {
        if wait(&commands, next)? {
            commands.fill();
            while let Some(line) = commands.next() {
                let answer = recorder.obey(serde_json::from_slice(&line)?)?;
                say(&answer).map_err(failed("be heard"))?;
            }
        }
        let now = Instant::now();
        if now >= next {
            recorder.tick()?;
            next = following(next, now, period);
        }
    }
    Ok(())
}

/// The first deadline after `now` on the grid that `due` is on: what was missed is not made up for.
fn following(due: Instant, now: Instant, period: Duration) -> Instant {
    let behind = now.saturating_duration_since(due).as_nanos() / period.as_nanos().max(1);
    due + period * u32::try_from(behind + 1).unwrap_or(u32::MAX)
}

struct Recorder {
    targets: Vec<Target>,
    out: BufWriter<Box<dyn Write>>,
}

impl Recorder {
    /// Does what it is told and gives the answer.
    fn obey(&mut self, command: Command) -> Result<Answer, SamplerError> {
        Ok(match command {
            Command::Add(target) => match located(target) {
                Ok(target) => {
                    self.targets.push(target);
                    Answer::Done
                }
                Err(why) => Answer::Refused(why.to_string()),
            },
            Command::Mark => {
                self.tick()?;
                Answer::Done
            }
            Command::Caps { name, caps } => {
                let group = self.targets.iter().find(|target| target.name == name).and_then(|it| it.cgroup.as_ref());
                match group.map(|group| group.assert_caps(caps)) {
                    Some(Ok(read)) => Answer::Caps(read),
                    Some(Err(why)) => Answer::Refused(why.to_string()),
                    None => Answer::Refused(format!("{name} has no control group that is sampled")),
                }
            }
        })
    }

    /// One sample of every target; a target that is gone is dropped.
    fn tick(&mut self) -> Result<(), SamplerError> {
        let mut taken = Vec::with_capacity(self.targets.len());
        self.targets.retain(|target| {
            let sample = take(target);
            let there = sample.is_some();
            taken.extend(sample);
            there
        });
        for sample in taken {
            serde_json::to_writer(&mut self.out, &sample)?;
            self.out.write_all(b"\n").map_err(failed("write a sample"))?;
        }
        self.out.flush().map_err(failed("write a sample"))
    }
}

/// The target with its group, where it is a container.
fn located(mut target: Target) -> Result<Target, CgroupError> {
    if let Some(id) = &target.container {
        target.cgroup = Some(Cgroup::of_container(id)?);
    }
    Ok(target)
}

/// Reads a target, with the time in the middle of the reading.
fn take(target: &Target) -> Option<Sample> {
    let before = clocks()?;
    let (source, usage) = match &target.cgroup {
        Some(cgroup) => (Source::Cgroup, cgroup.usage().ok()?),
        None => (Source::Proc, tree_usage(target.pid)?),
    };
    let after = clocks()?;
    Some(Sample {
        t_us: u64::midpoint(before.0, after.0),
        mono_us: u64::midpoint(before.1, after.1),
        name: target.name.clone(),
        source,
        usage,
    })
}

/// Sums over a process and its descendants, from `/proc`.
fn tree_usage(pid: u32) -> Option<Usage> {
    proctree::stat(pid).filter(|stat| stat.state != 'Z')?;
    let mut usage = Usage::default();
    let mut threads = 0;
    for member in std::iter::once(pid).chain(proctree::descendants(pid)) {
        let (Some(stat), memory) = (proctree::stat(member), proctree::memory(member)) else {
            continue;
        };
        let (anon, resident) = memory.unwrap_or_default();
        usage.user_us += stat.user_us;
        usage.system_us += stat.system_us;
        usage.anon += anon;
        usage.current += resident;
        threads += stat.threads;
    }
    usage.cpu_us = usage.user_us + usage.system_us;
    usage.pids = Some(threads);
    Some(usage)
}

/// Wall clock and monotonic clock, µs.
fn clocks() -> Option<(u64, u64)> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let mono = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?);
    Some((u64::try_from(wall.as_micros()).ok()?, u64::try_from(mono.as_micros()).ok()?))
}

/// Waits for a command until `deadline`; true if there is one, or the end of all commands.
fn wait(commands: &Lines, deadline: Instant) -> Result<bool, SamplerError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let round_up = left + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(round_up).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(commands.fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(failed("wait")(errno.into())),
    }
}

fn say(answer: &Answer) -> std::io::Result<()> {
    let mut line = format!("{SAYS}{}", serde_json::to_string(answer)?);
    line.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sampler::PERIOD;

    #[test]
    fn a_pause_leaves_out_ticks_and_keeps_the_grid() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(following(after(100), after(100), PERIOD), after(200));
        assert_eq!(following(after(100), after(130), PERIOD), after(200));
        assert_eq!(following(after(100), after(455), PERIOD), after(500));
        assert_eq!(following(after(100), after(500), PERIOD), after(600));
    }

    #[test]
    fn processes_are_summed_up_where_there_is_no_group() {
        let own = std::process::id();
        let target = Target { name: "self".into(), cgroup: None, container: None, pid: own };
        let sample = take(&target).expect("we run");
        assert_eq!(sample.source, Source::Proc);
        assert!(sample.usage.anon > 0 && sample.usage.current >= sample.usage.anon);
        assert!(sample.usage.pids >= Some(1));
        let gone = Target { name: "gone".into(), cgroup: None, container: None, pid: u32::MAX };
        assert_eq!(take(&gone), None);
    }
}
