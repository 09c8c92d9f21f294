use super::*;

/// Goal: labels are summed, and a name that another begins with is not mistaken for it.
#[test]
fn metrics_are_summed_over_labels() {
    let text = "# HELP a_total x\na_total{s=\"0\"} 3\na_total{s=\"1\"} 4\na_total_more 9\nb 1\n";
    assert_eq!(sum_metric(text, "a_total"), Some(7.0));
    assert_eq!(sum_metric(text, "b"), Some(1.0));
    assert_eq!(sum_metric(text, "c"), None);
}
