use super::*;

/// Closed on request, or never.
struct Engine(mpsc::Receiver<()>, mpsc::Sender<&'static str>);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.recv();
        let _ = self.1.send("closed");
    }
}

fn closing(
    close_max: Duration,
) -> (
    Closing<Engine>,
    mpsc::Sender<()>,
    mpsc::Receiver<&'static str>,
) {
    let (tell, told) = mpsc::channel();
    let (said, hear) = mpsc::channel();
    let engine = Some(Engine(told, said));
    (Closing { engine, close_max }, tell, hear)
}

/// Goal: dropping a healthy engine returns when it is closed, not before.
#[test]
fn an_engine_that_closes_is_waited_for() {
    let (engine, tell, hear) = closing(Duration::from_secs(600));
    drop(tell);
    drop(engine);
    assert_eq!(hear.try_recv(), Ok("closed"));
}

/// Goal: one that never closes blocks no thread: a server on a full disk hung in its stop.
#[test]
fn an_engine_that_hangs_is_left() {
    let (engine, tell, hear) = closing(Duration::from_millis(1));
    drop(engine);
    assert_eq!(hear.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(tell);
    assert_eq!(hear.recv(), Ok("closed"));
}
