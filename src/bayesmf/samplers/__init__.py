"""The update rules (SGD, SGLD, RowClock, SGHMC, SGNHT, Gibbs): settings, defaults, registry."""
