use super::*;
use crate::process_tree::is_alive;
use std::os::unix::process::CommandExt;

/// A process that leads a group of its own: a child of this one, or of another process.
fn leader(is_ours: bool) -> (i32, Option<Child>) {
    let script = if is_ours {
        "echo $$; exec sleep 1000"
    } else {
        "setsid sleep 1000 >/dev/null & echo $!"
    };
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).unwrap();
    let pid: i32 = line.trim().parse().unwrap();
    if is_ours {
        return (pid, Some(child));
    }
    child.wait().unwrap();
    while getpgid(Pid::from_raw(pid)) != Ok(Pid::from_raw(pid).unwrap()) {
        thread::yield_now();
    }
    (pid, None)
}

/// Goal: a number that the kernel gave to another process after the target's end is left alone. The
/// group of that number was signalled before, as root whichever user's it was.
#[test]
fn a_strangers_group_is_left_alone() {
    let collected = |pid| Supervisor {
        target: Pid::from_raw(pid).unwrap(),
        ended: None,
        go: None,
        stop_signal: StopSignal::Term,
        partial: Vec::new(),
    };
    let (stranger, _) = leader(false);
    assert!(!collected(stranger).signal_group(Signal::TERM));
    assert!(is_alive(stranger));
    kill_process(Pid::from_raw(stranger).unwrap(), Signal::KILL).unwrap();
    // One of ours in the group: the number is not free.
    let (ours, child) = leader(true);
    assert!(collected(ours).signal_group(Signal::TERM));
    child.unwrap().wait().unwrap();
}
