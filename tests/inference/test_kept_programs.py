"""What XLA compiled is kept on disk and read again, and nothing else that lies there is run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from bayesnmf.inference.sampling import kept_programs
from bayesnmf.inference.sampling.kept_programs import compile_kept


@pytest.fixture
def compilations(tmp_path, monkeypatch):
    """Keep programs in a folder of this test; return the list to which each compilation by XLA adds."""
    done = []
    compile_now = jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda lowered: done.append(1) or compile_now(lowered))
    monkeypatch.setattr(kept_programs, "trusted_folder", lambda name: tmp_path)
    monkeypatch.delenv(kept_programs.VARIABLE, raising=False)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()  # JAX holds on to the folder that it has opened
    yield done
    jax.config.update("jax_compilation_cache_dir", before)
    reset_cache()


def program(power=2.0, name="sum"):
    """Return a program whose result is a dictionary."""
    return jax.jit(lambda x: {name: jnp.sum(x**power)}).lower(jnp.arange(3.0))


def result(compiled, name="sum"):
    return float(compiled(jnp.arange(3.0))[name])


def test_a_program_is_compiled_once(compilations, tmp_path):
    assert [result(compile_kept(program())) for _ in range(3)] == [5.0] * 3
    assert len(compilations) == 1
    assert len(list(tmp_path.glob("*.xla"))) == 1


def test_programs_that_differ_are_kept_apart(compilations):
    """Also those whose code is the same, and whose results have other names."""
    found = [result(compile_kept(program(power))) for power in (2.0, 3.0)]
    assert found == [5.0, 9.0]
    assert result(compile_kept(program(name="other")), "other") == 5.0
    assert len(compilations) == 3


def test_settings_of_xla_are_part_of_the_digest(compilations, monkeypatch):
    compile_kept(program())
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")  # read by XLA at its start alone
    compile_kept(program())
    assert len(compilations) == 2


@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:-9], lambda c: c[:40] + b"\0" + c[41:]])
def test_a_damaged_file_is_replaced(compilations, tmp_path, damage):
    compile_kept(program())
    (file,) = tmp_path.glob("*.xla")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert file.read_bytes() != whole
    assert result(compile_kept(program())) == 5.0
    assert result(compile_kept(program())) == 5.0
    assert len(compilations) == 2


def test_the_files_that_were_read_least_lately_go_first(compilations, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "MOST_FILES", 2)
    for power in (2.0, 3.0):
        compile_kept(program(power))
    compile_kept(program(2.0))  # read
    compile_kept(program(4.0))
    assert len(list(tmp_path.glob("*.xla"))) == 2
    before = len(compilations)
    compile_kept(program(2.0))
    assert len(compilations) == before
    compile_kept(program(3.0))
    assert len(compilations) == before + 1


def test_nothing_is_kept_where_the_user_says_so_or_has_a_cache_of_his_own(compilations, tmp_path, monkeypatch):
    monkeypatch.setenv(kept_programs.VARIABLE, "0")
    compile_kept(program())
    monkeypatch.delenv(kept_programs.VARIABLE)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    compile_kept(program())
    assert not list(tmp_path.glob("*.xla"))
    assert len(compilations) == 2


def test_a_folder_that_cannot_be_written_to_costs_a_compilation_and_no_more(compilations, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "trusted_folder", lambda name: tmp_path / "absent")
    assert [result(compile_kept(program())) for _ in range(2)] == [5.0, 5.0]
    assert len(compilations) == 2


def test_a_program_is_read_for_one_of_several_devices(compilations):
    """As many as the tests have: what is read for all of them refuses arrays on the first."""
    assert jax.device_count() > 1
    assert [result(compile_kept(program())) for _ in range(2)] == [5.0, 5.0]
    assert len(compilations) == 1
    with jax.default_device(jax.devices()[1]):
        assert [result(compile_kept(program())) for _ in range(2)] == [5.0, 5.0]
    assert len(compilations) == 3


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, RuntimeError])
def test_a_program_that_jax_cannot_serialise_is_run(compilations, tmp_path, monkeypatch, error):
    def refuse(program):
        raise error("no serialisation")

    monkeypatch.setattr(kept_programs, "serialize", refuse)
    assert [result(compile_kept(program())) for _ in range(2)] == [5.0, 5.0]
    assert not list(tmp_path.glob("*.xla"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_a_second_fit_reads_what_the_first_compiled(compilations):
    """Draws of NUTS are the same to the bit, and so is what SVI fits."""
    import bayesnmf
    from bayesnmf.inference.sampling.nuts_and_svi import build_functions, compile_chain

    counts = np.random.default_rng(0).poisson(3.0, (6, 5))
    options = {"nuts": bayesnmf.NUTS(chains=1, draws=5, warmup=5), "svi": bayesnmf.SVI(max_iter=10)}
    for method, chosen in options.items():
        found = []
        for _ in range(2):
            compile_chain.cache_clear()
            build_functions.cache_clear()
            before = len(compilations)
            found.append(bayesnmf.fit(counts, rank=2, method=method, seed=0, options=chosen))
            compiled = len(compilations) - before
        assert compiled == 0
        np.testing.assert_array_equal(found[0].components, found[1].components)
