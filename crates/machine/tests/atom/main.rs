//! The model of ATOM: latencies worked out by hand, crashes at every event, planted faults, speed.

mod crashes;
mod faults;
mod latencies;
mod programs;
mod speed;
