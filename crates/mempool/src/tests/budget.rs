use super::*;

/// Goal: the last byte is granted, one more is refused, and a refusal changes nothing.
#[test]
fn limit_is_exact_and_refusal_harmless() {
    let mut budget = Budget::new(100);
    budget.take(99).unwrap();
    let refusal = PoolError::BudgetExhausted {
        requested_bytes: 2,
        limit_bytes: 100,
    };
    assert_eq!(budget.take(2), Err(refusal));
    assert_eq!(budget.reserved_bytes(), 99);
    budget.take(1).unwrap();
    budget.give_back(100);
    assert_eq!(budget.reserved_bytes(), 0);
    assert!(Budget::new(usize::MAX).take(usize::MAX).is_ok());
}
