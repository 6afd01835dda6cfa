!> A simulation that trains a model on its own states: while waves travel on a fine grid, the model learns the fluxes between coarse
!> cells. Then it replaces the fine grid. Killed and started again, it resumes exactly; mpirun divides the domain.
!>
!>     python model.py && OMP_NUM_THREADS=1 ./learn_flux
program learn_flux
  use, intrinsic :: iso_fortran_env, only: int64, output_unit, real64
  use advection
  use etude
  use halo, only: finish, rank, ranks, start, total
  implicit none
  integer, parameter :: waves = 8
  real(real64), allocatable, target :: fine(:, :), cells(:, :), correction(:, :)
  real(real64), allocatable :: flux(:, :), upwind(:, :)
  integer(int64), target :: seed = 1
  type(etude_arrays) :: state, batch, inputs, outputs
  type(etude_options) :: options
  type(etude_trainer) :: trainer
  integer :: n, step
  logical :: done

  call start()
  n = coarse_cells / ranks
  allocate (fine(ratio * n + 2 * halo_width, waves), cells(n + 2 * halo_width, waves), correction(n, waves), flux(n, waves))

  call options%set_json('{"output_dir": "learn_flux_output", "loss": "mse", "learning_rate": 3e-3, "max_steps": 3200, ' // &
                        '"save_steps": 200, "save_total_limit": 2, "logging_steps": 400}')
  call state%add("fine", fine)
  call state%add("seed", seed)
  call options%add_state(state)
  call trainer%create("flux.pt2", options)
  call trainer%begin("newest")
  call batch%add("cells", cells)
  call batch%add("labels", correction)

  do step = nint(trainer%number("global_step")), nint(trainer%number("max_steps")) - 1
    call observe(step, fine, seed, cells, correction)
    call trainer%step(batch, done)
    if (modulo(step + 1, 400) == 0 .and. rank == 0) then
      write (output_unit, "(a, i5, a, es9.2)") "step", step + 1, ": loss", trainer%number("loss")
      flush (output_unit)
    end if
    if (done) exit
  end do
  call trainer%finish()

  ! New waves, on the fine grid and on coarse grids with the fluxes of the upwind scheme and of the model.
  call draw(fine, seed)
  call average(fine, cells)
  upwind = cells
  call inputs%add("cells", cells)
  call outputs%add("", correction)
  do step = 1, period
    call advance(fine, flux)
    call advance_coarse(upwind)
    call trainer%predict(inputs, outputs)
    call advance_coarse(cells, correction)
  end do
  call show("the upwind scheme", upwind)
  call show("the trained model", cells)
  call trainer%destroy()
  call finish()
contains
  subroutine show(name, u)
    character(*), intent(in) :: name
    real(real64), intent(in) :: u(:, :)
    real(real64) :: expected(size(u, 1), size(u, 2)), errors
    call average(fine, expected)
    errors = total(sum(abs(u(1 + halo_width:n + halo_width, :) - expected(1 + halo_width:n + halo_width, :))))
    if (rank == 0) write (output_unit, "(3a, f8.5)") "mean error of ", name, " after a period:", errors / (coarse_cells * waves)
  end subroutine
end program
