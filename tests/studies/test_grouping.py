"""Runs with the same components, up to their order, are one mode, and each component's returns are counted."""

import numpy as np
import pytest

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Priors
from bayesnmf.inference.alignment import assign_components, cosine, match_components
from bayesnmf.priors.pair import movable_components
from bayesnmf.studies.stability.grouping import Found, group_fits, match_found, mode_of
from bayesnmf.studies.stability.modes import matched_cosines, recurrence_table

RNG = np.random.default_rng(0)
ALL = np.arange(3)
A = np.eye(3, 6) + 0.02
B = np.roll(A, 3, axis=1)  # shares no large entry with A


def found(components, size=None):
    return Found(np.asarray(components, float), np.full(len(components), 9.0) if size is None else np.asarray(size))


def near(components, noise=0.02):
    return components * RNG.uniform(1 - noise, 1 + noise, np.shape(components))


def shuffled(components):
    return components[RNG.permutation(len(components))]


def runs_of_two_modes():
    """Seven runs: five near A, two near B; with objectives in no order."""
    listed = [A, B, A, A, B, A, A]
    return [found(shuffled(near(each))) for each in listed], [-5.0, -3.0, -9.0, -1.0, -2.0, -4.0, -8.0]


def test_runs_are_grouped_by_their_components_whatever_their_order():
    runs, objectives = runs_of_two_modes()
    groups = group_fits(runs, objectives, ALL, 0.95)
    assert groups.mode.tolist() == [0, 1, 0, 0, 1, 0, 0]
    assert groups.leaders == [3, 4]  # the highest objective of each
    for _ in range(5):
        order = RNG.permutation(len(runs))
        again = group_fits([runs[i] for i in order], [objectives[i] for i in order], ALL, 0.95)
        assert again.mode.tolist() == groups.mode[order].tolist()
        assert [order[i] for i in again.leaders] == groups.leaders


def test_one_component_below_the_threshold_makes_another_mode():
    changed = A.copy()
    changed[1] = [0.3, 1, 0.2, 0, 0, 0]
    lowest = np.diag(cosine(changed, A)).min()
    assert lowest < 0.99
    runs = [found(A), found(changed)]
    assert group_fits(runs, [0.0, -1.0], ALL, lowest - 1e-9).mode.tolist() == [0, 0]
    assert group_fits(runs, [0.0, -1.0], ALL, lowest).mode.tolist() == [0, 1]  # it must exceed the threshold


def test_a_run_joins_the_first_mode_that_it_matches_and_the_highest_objective_leads():
    turn = np.array([[np.cos(t), np.sin(t)] for t in (0.0, 0.25, 0.5)])  # neighbours match, the ends do not
    runs = [found(each[None]) for each in turn]
    middle = np.arange(1)
    assert np.cos(0.25) > 0.95 > np.cos(0.5)
    assert group_fits(runs, [3.0, 1.0, 2.0], middle, 0.95).mode.tolist() == [0, 0, 1]
    assert group_fits(runs, [2.0, 1.0, 3.0], middle, 0.95).mode.tolist() == [1, 0, 0]
    assert group_fits(runs, [1.0, 3.0, 2.0], middle, 0.95).mode.tolist() == [0, 0, 0]
    assert group_fits(runs, [np.nan, -np.inf, 2.0], middle, 0.95).leaders[0] == 2


def test_known_components_keep_their_places():
    runs = [found(A), found(A[[1, 0, 2]])]
    assert group_fits(runs, [0.0, -1.0], ALL, 0.95).mode.tolist() == [0, 0]
    assert group_fits(runs, [0.0, -1.0], np.array([1, 2]), 0.95).mode.tolist() == [0, 1]
    assert group_fits(runs, [0.0, -1.0], np.array([], int), 0.95).mode.tolist() == [0, 1]
    equal, unequal = Gamma(1.0, 0.1), Gamma(np.array([1.0, 2.0, 3.0]), 0.1)
    assert movable_components(Priors(equal, Dirichlet(1.0)), 3).tolist() == [0, 1, 2]
    assert movable_components(Priors(unequal, Dirichlet(1.0)), 3).tolist() == []
    assert movable_components(Priors(equal, "parameter"), 3).tolist() == [0, 1, 2]
    fitted = bayesnmf.fit(RNG.poisson(3.0, (8, 6)), rank=3, seed=0, fixed_components=[[1 / 6] * 6],
                          options=VI(start="random", tol=1e-4))  # fmt: skip
    assert movable_components(fitted.priors, 3).tolist() == [1, 2]
    known = bayesnmf.fit(RNG.poisson(3.0, (8, 6)), seed=0, fixed_components=RNG.dirichlet(np.ones(6), 2),
                         options=VI(priors=Priors(Gamma(np.array([1.0, 2.0]), 0.1))))  # fmt: skip
    assert movable_components(known.priors, 2).tolist() == []


def test_empty_components_match_each_other_and_no_others():
    one, other = A.copy(), A.copy()
    other[2] = A[0]  # what it looks like does not matter
    groups = group_fits([found(one, [9, 9, 0.1]), found(other, [9, 9, 0.2])], [0.0, -1.0], ALL, 0.95)
    assert groups.mode.tolist() == [0, 0]
    groups = group_fits([found(one, [9, 9, 0.1]), found(A, [9, 9, 9])], [0.0, -1.0], ALL, 0.95)
    assert groups.mode.tolist() == [0, 1]
    order, cosines = match_found(found(other, [9, 9, 0.1]), found(A[[2, 1, 0]], [9, 9, 0.1]), ALL)
    assert order[2] == 2
    np.testing.assert_allclose(cosines[1:], 1.0)


def test_the_assignment_has_the_largest_sum():
    from itertools import permutations

    for _ in range(20):
        similarity = RNG.uniform(size=(4, 4))
        order = assign_components(similarity)
        sums = [similarity[list(each), range(4)].sum() for each in permutations(range(4))]
        assert similarity[order, range(4)].sum() == pytest.approx(max(sums))
        among = np.array([0, 2, 3])
        held = assign_components(similarity, among)
        assert held[1] == 1
        sums = [similarity[list(each), range(4)].sum() for each in permutations(range(4)) if each[1] == 1]
        assert similarity[held, range(4)].sum() == pytest.approx(max(sums))
    assert match_components(A[[2, 0, 1]], A).tolist() == [1, 2, 0]


def test_recurrence_and_closeness_are_those_of_the_formula():
    """Two components, three runs, all cosines by hand."""
    leader = found([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [30.0, 10.0])
    second = found([[0.0, 3.0, 4.0], [2.0, 0.0, 0.0]])  # exchanged: cosines 1 with the first, 0.6 with the second
    third = found([[0.8, 0.0, 0.6], [0.0, 0.5, 0.0]])  # cosines 0.8 and 1
    runs, movable = [leader, second, third], np.arange(2)
    np.testing.assert_allclose(matched_cosines(leader, runs, movable), [[1, 1], [1, 0.6], [0.8, 1]], atol=1e-15)
    groups = group_fits(runs, [0.0, -1.0, -2.0], movable, 0.75)
    assert groups.mode.tolist() == [0, 1, 0]
    table = recurrence_table(runs, groups, movable, 0.75).loc[0]
    np.testing.assert_allclose(table["share_of_counts"], [0.75, 0.25])
    assert table["runs"].tolist() == [3, 2]
    np.testing.assert_allclose(table["recurrence"], [1.0, 2 / 3])
    np.testing.assert_allclose(table["closeness"], [2.8 / 3, 2.6 / 3])
    np.testing.assert_allclose(table["least"], [0.8, 0.6])
    other = recurrence_table(runs, groups, movable, 0.75).loc[1]
    assert other["in_best"].tolist() == [1, 0]
    np.testing.assert_allclose(other["in_best_cosine"], [0.6, 1.0])


def test_components_belong_to_the_first_mode_that_they_match():
    leaders = [found(A), found(B)]
    assert mode_of(found(shuffled(near(B))), leaders, ALL, 0.95) == 1
    assert mode_of(found(shuffled(near(A))), leaders, ALL, 0.95) == 0
    assert mode_of(found(np.ones((3, 6))), leaders, ALL, 0.95) is None
