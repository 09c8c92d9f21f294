//! Numbers: histograms, statistics, counters, records, reports; no sockets
