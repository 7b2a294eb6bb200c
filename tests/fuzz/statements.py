"""What programs are made of: templates of expressions and writes.

Placeholders: ``{x} {y} {z}`` any tensor, ``{f} {g}`` a floating one, ``{i}`` an int64 one, ``{s}`` a number, ``{n}`` a
small integer, ``{d} {e}`` a dimension, ``{at}`` an index. A template that does not fit the tensors at hand is dropped.
"""

from __future__ import annotations

POINTWISE = (
    "{f}.sin()", "{f}.cos()", "{f}.tanh()", "torch.sigmoid({f})", "{x}.abs()", "-{x}", "{f}.square()", "F.relu({f})",
    "F.gelu({f})", "F.silu({f})", "F.softplus({f})", "{f}.abs().add(1).log()", "{f}.clamp(-1, 1)",
    "{f}.exp().clamp(max=10)", "{f}.abs().add(0.1).sqrt()", "{f}.floor()", "{f}.round()", "{f}.sign()",
    "F.leaky_relu({f}, 0.1)", "{f}.erf()", "F.elu({f})", "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} + {s}",
    "{s} * {x}", "{s} - {x}", "{f} / ({g}.abs() + 1)", "{x}.clone()", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "torch.where({x} > 0, {x}, {y})", "torch.where({x} > {y}, {f}, {s})",
    "torch.addcmul({f}, {g}, {f})", "torch.lerp({f}, {g}, 0.3)", "{x}.add({y}, alpha=2)",
    "torch.atan2({f}, {g}.abs() + 1)", "{x}.masked_fill({y} > 0, {s})", "{f}.pow(2)", "{f}.clamp(min={g})",
    "torch.hypot({f}, {g} + 3)", "F.hardtanh({f})", "{x} > {y}", "{x} == {y}", "({x} > 0) & ({y} > 0)", "{x} // 2",
    "{x} % 3", "{i} ^ {i}", "torch.rand_like({f})", "F.dropout({f}, 0.5)", "torch.randn(3)", "{f}.frac()",
    "torch.zeros_like({x})", "torch.full_like({x}, 2)",
)  # fmt: skip

REDUCTIONS = (
    "{x}.sum()", "{x}.sum({d})", "{x}.sum({d}, keepdim=True)", "{f}.mean({d})", "{f}.mean()", "{x}.amax({d})",
    "{f}.var({d})", "{f}.logsumexp({d})", "{x}.cumsum({d})", "{f}.softmax({d})", "F.log_softmax({f}, {d})",
    "{x}.argmax({d})", "{x}.any({d})", "{f}.norm()", "{f}.norm(dim={d})", "{x}.prod({d})", "{x}.max({d}).values",
    "{x}.sort({d}).values", "{x}.sum(({d}, {e}))", "{f}.std({d}, keepdim=True)", "{x}.amin(({d}, {e}))",
    "{x}.max({d}).indices", "{f}.nansum({d})", "{x}.all()", "{x}.argsort({d})", "{f}.cumprod({d})",
    "torch.median({f}, {d}).values", "{x}.topk(1, {d}).values", "{f}.mean({d}, keepdim=True)", "{x}.flip({d})",
    "torch.linalg.vector_norm({f}, dim={d})", "{f}.quantile(0.5, {d})", "{x}.diff(dim={d})", "{f}.logcumsumexp({d})",
)  # fmt: skip

VIEWS = (
    "{x}[{at}]", "{x}[{at}]", "{x}[{at}]", "{x}.t()", "{x}.mT", "{x}.transpose({d}, {e})", "{x}.unsqueeze({d})",
    "{x}.squeeze()", "{x}.squeeze({d})", "{x}.view(-1)", "{x}.reshape(-1)", "{x}.reshape({n}, -1)",
    "{x}.view({n}, -1)", "{x}.flatten()", "{x}.select({d}, {n})", "{x}.narrow({d}, 0, {n})", "{x}.diagonal()",
    "{x}.expand({n}, *{x}.shape)", "{x}.movedim({d}, {e})", "{x}.unfold({d}, 2, 1)", "{x}.detach()",
    "{x}.view_as({x})", "{x}.permute(*range({x}.dim())[::-1])", "{x}.contiguous()", "{x}.chunk(2, {d})[0]",
    "{x}.split(1, {d})[-1]", "{x}.unbind({d})[0]", "{x}.view(*{x}.shape, 1)", "{x}.swapaxes({d}, {e})",
    "{x}.expand_as({y})", "{x}.broadcast_to({y}.shape)", "{x}.view({x}.dtype)", "{x}.real", "torch.atleast_2d({x})",
    "{x}.T", "{x}.as_strided((2,), (1,), min({n}, {x}.numel() - 2))", "{x}.unflatten({d}, ({n}, -1))",
    "{x}.tensor_split(2, {d})[1]",
)  # fmt: skip

SHAPES = (
    "torch.cat([{x}, {y}], {d})", "torch.stack([{x}, {y}], {d})", "{x}.repeat(2, *[1] * ({x}.dim() - 1))",
    "{x}.roll(1, {d})", "{x}.tril()", "F.pad({x}, (1, 0))", "{x}.index_select({d}, torch.tensor([0, 0]))",
    "{x}[{i} % {x}.shape[0]]", "{x}.repeat_interleave(2, {d})",
    "{x}.gather({d}, torch.zeros_like({x}, dtype=torch.int64))", "{x}.take_along_dim({x}.argsort({d}), {d})",
    "{x}[torch.tensor([1, 0])]", "{x}.index_fill({d}, torch.tensor([0]), 2)", "torch.diag_embed({x})",
    "{x}.scatter({d}, {x}.argsort({d}), {x})", "{x}.new_ones({n})", "torch.outer({f}, {g})", "torch.tile({x}, (2,))",
    "{x}.index_add(0, torch.tensor([0]), {y})", "{x}.slice_scatter({y}, {d}, 0, 1)",
)  # fmt: skip

MATRICES = (
    "{f} @ {g}", "{f} @ {g}.mT", "{f}.mT @ {g}", "F.linear({f}, {g})", "torch.einsum('ij,kj->ik', {f}, {g})",
    "torch.bmm({f}, {g})", "F.layer_norm({f}, {f}.shape[-1:])", "torch.addmm({f}, {g}, {f})", "torch.outer({f}, {g})",
    "F.mse_loss({f}, {g})", "F.conv1d({f}[None, None].flatten(2), torch.ones(1, 1, 2))",
    "F.embedding({i} % {f}.shape[0], {f})", "F.normalize({f}, dim={d})",
    "F.cross_entropy({f}, torch.zeros({f}.shape[0], dtype=torch.int64))", "torch.cdist({f}, {g})",
    "F.scaled_dot_product_attention({f}, {f}, {g})", "F.cosine_similarity({f}, {g}, {d})",
    "F.rms_norm({f}, {f}.shape[-1:])", "F.smooth_l1_loss({f}, {g})", "torch.baddbmm({f}, {f}, {g})",
)  # fmt: skip

CASTS = (
    "{x}.double()", "{x}.float()", "{f}.long()", "{x}.bool()", "{x}.to(torch.float64)", "{f}.bfloat16()",
    "{x}.to({y}.dtype)", "{x}.int()", "{x}.type_as({y})", "{f}.half()", "{x}.to({x}.dtype)",
)  # fmt: skip

WRITES = (
    "{x}.add_({y})", "{x}.mul_({y})", "{x}.sub_({s})", "{x}.zero_()", "{x}.fill_({s})", "{x}.copy_({y})",
    "{x}[{at}] = {y}", "{x}[{at}] = {s}", "{x}[{at}] += {y}", "{x}[{at}] *= {s}", "{x} += {y}", "{x} *= {s}",
    "{x}[{y} > 0] = {s}", "{f}.sin_()", "{x}.masked_fill_({y} > 0, {s})", "{f}.clamp_(-1, 1)",
    "F.relu({f}, inplace=True)", "torch.add({x}, {y}, out={z})", "{f}.tanh_()", "torch.mul({x}, {s}, out={z})",
    "{x}.index_put_((torch.tensor([0, 1]),), {y})", "{x}.index_add_(0, torch.tensor([0]), {y})",
    "{x}.scatter_({d}, {x}.argsort({d}), {s})", "{x}.index_copy_({d}, torch.tensor([0]), {y})", "{x}.abs_()",
    "{x}.neg_()", "{f}.addcmul_({g}, {f})", "{f}.lerp_({g}, 0.5)", "{x}.t().copy_({y})", "{x}.view(-1)[{n}] = {s}",
    "{x}.masked_scatter_({y} > 0, torch.arange(200))", "{x}[{at}].add_({s})", "{x}.fill_diagonal_({s})",
    "torch.sin({f}, out={g})", "{x}.index_fill_({d}, torch.tensor([0]), {s})",
    "{x}.index_put_((torch.tensor([0, 0]),), {y}, accumulate=True)", "torch.cat([{x}, {y}], {d}, out={z})",
    "{x}.unsqueeze_({d})", "{x}.detach().add_({s})", "{f}.uniform_()", "{x}.cumsum_({d})",
    "{x}.transpose({d}, {e})[{n}] = {y}", "torch.sum({x}, {d}, out={z})", "{f}.sigmoid_()", "{x}.squeeze().mul_({s})",
    "F.dropout({f}, 0.5, inplace=True)", "{x}.diagonal().add_({s})", "{x}.unbind({d})[0].mul_({s})", "{f}.relu_()",
    "{x}.tril_()",
)  # fmt: skip

INDICES = (
    "0", "-1", "1", "1:", ":1", "::2", "..., 0", ":, 0", ":, 1:", "None", "..., None", "0, 1", "1, :", ":, ::2",
    "..., -1:", "0:2, 1:", "[0, 1]", "[1, 0]", "torch.tensor([1, 1])", ":, [0]", "1:, None",
)  # fmt: skip

SCALARS = ("2", "-1", "0.5", "3", "0", "1.5", "True")

SETUPS = (
    "torch.randn({shape}, generator=g)",
    "torch.randn({shape}, generator=g)",
    "torch.randn({shape}, generator=g)",
    "torch.randn({shape}, generator=g, dtype=torch.float64)",
    "torch.randint(-3, 4, ({shape},), generator=g)",
    "torch.rand({shape}, generator=g) > 0.5",
    "torch.randn({shape}, generator=g).bfloat16()",
    "torch.randn({shape}, generator=g).t().contiguous().t()",
    "torch.randn({shape}, generator=g)[..., ::2]",
)

SHAPE_CHOICES = ("3, 4", "3, 4", "2, 3", "4", "3", "4, 4", "2, 3, 4", "1, 4", "3, 1", "2", "1", "2, 2, 3", "4, 3")
